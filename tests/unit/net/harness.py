"""The compiled core in one process: a SocketServer, handlers, logs and topics, without a broker.

A `Rig` is what the broker builds around the hot path and nothing else: no controller, no timer.
Deadlines that the hot path announces are kept in `rig.ticks` and expired by the test, so that no
test waits for time to pass; requests that Python must answer go to `rig.dispatch`, which a test may
replace. `Client` is a raw socket that sends and receives frames.

Waiting is always for a condition (`eventually`) or for bytes, with a bound that only a failure
reaches. `close` asserts that connections and parked requests are back to zero.
"""

from __future__ import annotations

import array
import fcntl
import select
import socket
import struct
import termios
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from kbroker._net import SocketServer, WrappedRequest
from kbroker.engine._hot import HotPath
from kbroker.errors import ErrorCode
from kbroker.log.engine._flush_times import FlushTimes
from kbroker.protocol.versions import FLEXIBLE_SINCE, SERVED
from kbroker.replica._topic_table import TopicTable
from kbroker.security.session import ANONYMOUS
from kbroker.server.handler_pool import HandlerPool
from kbroker.types import ApiKey
from tests.support.led_log import LedLog, open_led_log

T = TypeVar("T")

DEADLINE_S: Final = 60.0
NODE_ID: Final = 1
# A second, and two polls of a network thread, in which it looks for silent connections.
SILENCE_NS: Final = 1_700_000_000
# A key that no hot path takes: its requests go to Python. Not ApiVersions, whose header differs.
COLD_KEY: Final = ApiKey.LIST_GROUPS
COLD_VERSION: Final = 0


def eventually(condition: Callable[[], T], what: str = "") -> T:
    """The condition's value once it is true; fails after the deadline."""
    until = time.monotonic() + DEADLINE_S
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < until, what or condition
        pause.wait(0.002)
    return value


def header(
    key: int, version: int, correlation_id: int = 1, client_id: str | None = "test"
) -> bytes:
    """A request header, with tagged fields where this version has them."""
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id))
    name += (client_id or "").encode()
    flexible = version >= FLEXIBLE_SINCE.get(ApiKey(key), 1 << 15)
    return struct.pack(">hhi", key, version, correlation_id) + name + (b"\0" if flexible else b"")


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def cold_frame(body: bytes = b"", correlation_id: int = 1) -> bytes:
    """A frame that `rig.dispatch` gets; by default it answers with the body."""
    return framed(header(COLD_KEY, COLD_VERSION, correlation_id) + body)


C = TypeVar("C", bound="Client")


class Client:
    """One connection. Every wait is bounded by the deadline."""

    def __init__(self, port: int, *, receive_bytes: int | None = None, host: str = "") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if host:
            self.socket.bind((host, 0))
        self.socket.connect(("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, count: int) -> bytes:
        """Exactly so many bytes; fewer when the peer ends the connection before."""
        parts = bytearray()
        while len(parts) < count:
            got = self.socket.recv(min(count - len(parts), 1 << 20))
            if not got:
                break
            parts += got
        return bytes(parts)

    def receive(self) -> bytes:
        """The next answer without its size."""
        prefix = self.read(4)
        assert len(prefix) == 4, f"the connection ended: {prefix!r}"
        (size,) = struct.unpack(">i", prefix)
        payload = self.read(size)
        assert len(payload) == size, f"the answer ended after {len(payload)} of {size} bytes"
        return payload

    def receive_cold(self) -> tuple[int, bytes]:
        """Correlation id and body of an answer with header v0."""
        payload = self.receive()
        return struct.unpack(">i", payload[:4])[0], payload[4:]

    def ended(self) -> bool:
        """Waits for the end of the connection: true when it came without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def has_bytes(self) -> bool:
        """Whether bytes or the end are there to be read, now."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def all_delivered(self) -> None:
        """Waits until the peer's kernel has every byte that was sent."""

        def unacknowledged() -> int:
            count = array.array("i", [0])
            fcntl.ioctl(self.socket, termios.TIOCOUTQ, count)
            return count[0]

        eventually(lambda: unacknowledged() == 0, "sent bytes are not acknowledged")

    def end_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Ends the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


@dataclass
class Topic:
    name: str
    topic_id: uuid.UUID
    logs: list[LedLog]


@dataclass
class Gate:
    """A dispatch that keeps requests until the test lets them go."""

    held: list[WrappedRequest] = field(default_factory=list)

    def __call__(self, request: WrappedRequest) -> None:
        self.held.append(request)

    def wait_for(self, count: int) -> None:
        eventually(lambda: len(self.held) >= count, f"{count} requests in Python")

    def release(self) -> int:
        """Answers what is held with its own body; how many that were."""
        held, self.held = self.held, []
        for request in held:
            request.respond(request.body)
        return len(held)


class FailsOnce:
    """In place of a lookup, when memory runs out."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self.failed = False

    def __call__(self, *given: Any) -> Any:
        if not self.failed:
            self.failed = True
            raise MemoryError
        return self._found(*given)

    get = __call__


def echo(request: WrappedRequest) -> None:
    request.respond(request.body)


def coordinator_unknown(
    transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[Any],
    *, adds: bool, done: Callable[[dict[Any, ErrorCode]], None],
) -> None:  # fmt: skip
    done(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))


class Rig:
    """A SocketServer on a free port of the loopback, with handlers over the hot path."""

    def __init__(
        self,
        directory: Path,
        *,
        handlers: int = 1,
        dispatch: Callable[[WrappedRequest], None] = echo,
        hot: dict[str, Any] | None = None,
        overrides: dict[str, int] | None = None,
        hosts: Sequence[str] = ("127.0.0.1",),
        listener: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.dispatch = dispatch
        self.ticks: list[int] = []
        self.topics: dict[str, Topic] = {}
        self.flush_times = FlushTimes()
        self.clients: list[Client] = []
        self.stopped = False
        self._received = (-1, 0)
        self.server = SocketServer(**(SETTINGS | settings))
        for address, bound in (overrides or {}).items():
            self.server.override_connections(address, bound)
        for key in (ApiKey.PRODUCE, ApiKey.FETCH):
            self.server.set_hot(key, SERVED[key].min, SERVED[key].max)
        for api_key, version in FLEXIBLE_SINCE.items():
            self.server.set_flexible_from(api_key, version)
        self.table = TopicTable()
        self.hot = HotPath(self.server, self.table, **(_HOT | (hot or {})))
        self.verify: Callable[..., None] = coordinator_unknown
        self.pool = HandlerPool(
            self.hot, handlers, lambda r: self.dispatch(r), self.ticks.append,
            verify=lambda *given, **named: self.verify(*given, **named),
        )  # fmt: skip
        addresses = [(host, 0) for host in hosts]
        options = {"principal": ANONYMOUS} | (listener or {})
        self.port = self.server.listen("PLAINTEXT", addresses, **options)[0][1]
        self.pool.start()
        self.server.start()

    # --- topics -----------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        internal: bool = False,
        directory: Path | None = None,
        **settings: Any,
    ) -> Topic:
        """`directory`: the data directory of its logs, if it is not the rig's own."""
        topic_id = uuid.uuid4()
        logs = []
        for index in range(partitions):
            path = (directory or self.directory) / f"{name}-{index}"
            path.parent.mkdir(exist_ok=True)
            log = open_led_log(path, name, index, topic_id, settings)
            log.count_flushes(self.flush_times)
            log.set_leadership(NODE_ID, True, 0, 1)
            logs.append(log)
        topic = self.topics[name] = Topic(name, topic_id, logs)
        self.table.publish([(name, topic_id.bytes, internal, list(logs))], [])
        return topic

    def delete(self, name: str) -> None:
        """As the replica manager does: out of sight, then the logs, then who waits for them."""
        topic = self.topics.pop(name)
        self.table.publish([], [topic.topic_id.bytes])
        for log in topic.logs:
            log.delete()
            self.hot.wake(log)

    def flushes(self) -> int:
        """Of all logs, since the rig began."""
        return self.flush_times.read(())[0]

    # --- clients and figures ----------------------------------------------------------------------

    def client(self, **options: Any) -> Client:
        return self.connected(Client(self.port, **options))

    def connected(self, client: C) -> C:
        """Closed with the rig."""
        self.clients.append(client)
        return client

    def total(self, name: str) -> int:
        """One figure of the network threads, summed."""
        processors: list[Any] = list(self.server.statistics()["processors"])
        return sum(p[name] for p in processors)

    def silent_for_a_second(self) -> bool:
        """True once every network thread has seen more than a second of silence and looked."""
        now_ns = time.monotonic_ns()
        received = self.total("received_bytes")
        if received != self._received[0]:
            self._received = (received, now_ns)
        return now_ns - self._received[1] > SILENCE_NS

    def expire_all(self, *waiting: Client) -> None:
        """The deadlines of everything that has been parked, each once; until these clients have
        something to read, since a deadline is announced a moment after its fetch was parked."""

        def all_told() -> bool:
            with suppress(IndexError):  # there are no more of them
                while True:
                    self.hot.expire(self.ticks.pop(0))
            return all(client.has_bytes() for client in waiting)

        eventually(all_told, "deadlines are announced, and answers come")

    def wait_parked(self, count: int) -> None:
        eventually(
            lambda: self.hot.statistics()["parked_now"] == count and len(self.ticks) >= (count > 0),
            f"{count} parked requests",
        )

    # --- the end ----------------------------------------------------------------------------------

    def stop(self, *, at_once: bool = False) -> None:
        """As the broker stops its network and then its handlers."""
        if self.stopped:
            return
        self.stopped = True
        self.server.stop_accepting()
        self.hot.close_parked()
        self.server.stop(at_once=at_once)
        self.pool.join()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if not self.stopped:
            eventually(lambda: self.total("connections") == 0, "connections outlive their clients")
        self.stop()
        assert self.hot.statistics()["parked_now"] == 0
        for topic in self.topics.values():
            for log in topic.logs:
                log.close(clean=False)


SETTINGS: Final[dict[str, Any]] = {
    "processors": 1,
    "queued_requests_max": 500,
    "queued_bytes_max": -1,
    "request_bytes_max": 100 << 20,
    "idle_ms_max": 600_000,
    "connections_max": 1000,
    "connections_per_ip_max": 1000,
    "pipelined": True,
    "pipelined_requests_max": 64,
    "pipelined_bytes_max": 1 << 20,
    "pipelined_total_bytes_max": 64 << 20,
    "unsent_bytes_max": 256 << 20,
    "send_buffer_bytes": 102_400,
    "receive_buffer_bytes": 102_400,
}
_HOT: Final[dict[str, Any]] = {
    "session_slots_max": 100,
    "session_eviction_ms_min": 120_000,
    "fetch_bytes_max": 55 << 20,
}


@contextmanager
def running(directory: Path, **options: Any) -> Iterator[Rig]:
    rig = Rig(directory, **options)
    try:
        yield rig
    except BaseException:
        rig.stop(at_once=True)
        raise
    else:
        rig.close()
