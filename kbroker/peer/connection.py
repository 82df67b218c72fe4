"""One connection of `NetworkClient`: frames out, frames in, and the requests between them.

A request's header is made here; the caller brings an encoded body. A response is handed over as a
`Reader` after its header. Responses must come in request order: a correlation id that is not the
oldest one's, a frame of a size out of bounds, or a request past its deadline ends the connection
and everything in flight on it, since no later response can be trusted.

Owner: the asyncio loop of its client; nothing here blocks, nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kbroker import limits
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import frames, messages
from kbroker.peer._frames_in import FramesIn, FrameSizeError, answer_in
from kbroker.peer.address import Address
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin

RECEIVE_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkClientOptions:
    client_id: str = "kbroker"
    in_flight_max: int = limits.CLIENT_IN_FLIGHT_MAX
    request_timeout_ms: int = 30_000
    connection_setup_timeout_ms: int = 10_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    response_bytes_max: int = frames.RESPONSE_BYTES_MAX
    # Callers that wait for a place on one node; more are refused at once.
    waiting_max: int = 1_000
    # Where it has to authenticate.
    login: ClientLogin | None = None


@dataclass(slots=True)
class Counters:
    requests_sent: int = 0
    responses_received: int = 0
    connects_failed: int = 0
    disconnects: int = 0
    requests_timed_out: int = 0


class _InFlight(NamedTuple):
    correlation_id: int
    api_key: ApiKey
    shape: frames.Shape
    deadline_s: float
    response: asyncio.Future[Reader]


def network_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, message)


class Connection(asyncio.BufferedProtocol):
    """One socket: frames out, frames in, the queue between them.

    `FramesIn` receives into one piece of RECEIVE_BYTES, and a longer frame into its own place.
    """

    def __init__(
        self,
        address: Address,
        options: NetworkClientOptions,
        counters: Counters,
        on_change: Callable[[], None],
        on_lost: Callable[[Connection, KafkaError], None],
    ) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self.negotiated = False
        self.authenticating = False  # again, so that no other request is sent meanwhile
        self.closed = False
        self._options = options
        self._counters = counters
        self._on_change = on_change
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._received = FramesIn(RECEIVE_BYTES, frames.FRAME_BYTES_MIN, options.response_bytes_max)
        self.get_buffer = self._received.get_buffer  # type: ignore[method-assign]
        self._next_correlation_id = 0
        self._write_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def has_room(self) -> bool:
        return (
            not self.closed
            and not self.authenticating
            and not self._write_paused
            and len(self._in_flight) < self._options.in_flight_max
        )

    def send(
        self, api_key: ApiKey, version: int, body: bytes, timeout_ms: int, expects_response: bool
    ) -> asyncio.Future[Reader]:
        transport = self._transport
        if transport is None or self.closed:
            raise network_error(f"{self.address} is not connected")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & frames.CORRELATION_ID_MAX
        shape = frames.shape_of(api_key, version, self._options.client_id)
        response: asyncio.Future[Reader] = self._loop.create_future()
        self._counters.requests_sent += 1
        if expects_response:
            deadline_s = self._loop.time() + timeout_ms / 1000
            self._in_flight.append(_InFlight(correlation_id, api_key, shape, deadline_s, response))
            self._arm_timer(deadline_s)
        else:
            response.set_result(Reader(b"", flexible=False))
        transport.write(shape.request_frame(correlation_id, body))
        return response

    def close(self, error: KafkaError) -> None:
        """Fails everything in flight, once; later calls do nothing."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        while self._in_flight:
            response = self._in_flight.popleft().response
            if not response.done():
                response.set_exception(error)
                response.exception()  # a caller that went away causes no complaint
        self._on_lost(self, error)

    # --- asyncio's callbacks ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(network_error(f"{self.address} closed the connection{_because(exc)}"))

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._on_change()

    def buffer_updated(self, nbytes: int) -> None:
        received = self._received
        received.note(nbytes)
        try:
            while not self.closed and (frame := received.take()) is not None:
                self._on_frame(frame)
        except FrameSizeError as error:
            self.close(network_error(f"{self.address} sent a frame of {error.args[0]} bytes"))

    def _on_frame(self, frame: bytes) -> None:
        if not self._in_flight:
            self._unexpected(frame, "none")
            return
        correlation_id, _, shape, _, response = self._in_flight[0]
        try:
            reader = answer_in(frame, correlation_id, shape.flexible, shape.answer_has_tags)
        except ProtocolError as error:
            self.close(network_error(f"{self.address} sent a malformed response: {error}"))
            return
        if reader is None:
            self._unexpected(frame, correlation_id)
            return
        self._in_flight.popleft()
        self._counters.responses_received += 1
        if not response.done():
            response.set_result(reader)
        self._on_change()

    def _unexpected(self, frame: bytes, expected: object) -> None:
        correlation_id = frames.correlation_id_of(frame)
        self.close(
            network_error(
                f"{self.address} answered correlation id {correlation_id}, expected {expected}"
            )
        )

    def _arm_timer(self, deadline_s: float) -> None:
        """One timer, due when the earliest deadline is or before: it is left alone when an answer
        comes, since most requests are answered long before, and looks again when it is due."""
        if self._timer is not None:
            if self._timer_due_s <= deadline_s:
                return
            self._timer.cancel()
        self._timer_due_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        late = [request for request in self._in_flight if request.deadline_s <= now_s]
        if not late:
            if self._in_flight:
                self._arm_timer(min(request.deadline_s for request in self._in_flight))
            return
        for request in late:
            self._counters.requests_timed_out += 1
            if not request.response.done():
                text = f"{self.address} did not answer {request.api_key.label} in time"
                request.response.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))
                request.response.exception()
        label = late[0].api_key.label
        self.close(network_error(f"{self.address}: closed, {label} was not answered in time"))


async def negotiate(
    connection: Connection, options: NetworkClientOptions
) -> dict[int, tuple[int, int]]:
    """ApiVersions in the newest form we know, then in the oldest if the peer does not know it."""
    timeout_ms = options.connection_setup_timeout_ms
    for version in (3, 0):
        body = messages.encode_api_versions(version)
        reader = await connection.send(ApiKey.API_VERSIONS, version, body, timeout_ms, True)
        try:
            return messages.decode_api_versions(reader, version)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
    raise network_error(f"{connection.address} answers no version of ApiVersions")


async def log_in(connection: Connection, login: ClientLogin, options: NetworkClientOptions) -> int:
    """Authenticate a connection whose versions are known; how long the session lasts, in ms, or 0
    if as long as the connection."""
    from kbroker.peer.logging_in import exchange  # not for those who need not

    steps = exchange(login, connection.versions)
    timeout_ms = options.connection_setup_timeout_ms
    try:
        api_key, version, body = next(steps)
        while True:
            reader = await connection.send(api_key, version, body, timeout_ms, True)
            api_key, version, body = steps.send(reader)
    except StopIteration as end:
        lifetime_ms: int = end.value
        return lifetime_ms


def _because(error: Exception | None) -> str:
    return f": {error}" if error is not None else ""
