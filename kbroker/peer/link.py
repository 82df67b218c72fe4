"""One blocking connection to a broker: requests out, responses in, in order.

A command asks a broker a handful of things and ends, and it must have answered before an event loop
is even imported; so this is a plain socket. `send` writes a request, `receive` waits for the oldest
response that is due. Whatever goes wrong (a lost connection, a frame of a size out of bounds, a
correlation id that is not the oldest one's, a response that does not come in time) closes the link,
since no later response can be trusted, and is a `KafkaError` that may be tried again elsewhere.

A session that ends before its connection (KIP-368) is renewed by the first request that is sent
after most of it is over, and before its end. After its end the broker would close the connection
for the next request: none is sent, which is an error that may be tried again, and responses that
are due still come. Then the link is no longer `usable`, and its client opens another one.

Bounds: the response frame. Owner: the thread of its client.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker import limits
from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer import frames, messages
from kbroker.peer.address import Address, reason
from kbroker.peer.frames import RESPONSE_BYTES_MAX
from kbroker.peer.versions import VERSIONS
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin
    from kbroker.security.client_tls import ClientTls

SETUP_TIMEOUT_MS_MAX: Final = 10_000
_SHORTEST_WAIT_S: Final = 0.001


class _Due(NamedTuple):
    correlation_id: int
    api_key: ApiKey
    version: int


def network_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, message)


class Link:
    """A connected socket, and what the broker at its end offers."""

    def __init__(self, address: Address, connected: socket.socket, client_id: str, clock: Clock):
        self.address = address
        self.closed = False
        self.was_late = False  # closed since a response did not come in time
        self.versions: dict[int, tuple[int, int]] = {}
        self._socket = connected
        self._client_id = client_id
        self._clock = clock
        self._due: deque[_Due] = deque()
        self._next_correlation_id = 0
        self._login: ClientLogin | None = None
        self._again_ns = 0  # when to authenticate again; 0: never
        self._ends_ns = 0  # when that is too late

    @property
    def usable(self) -> bool:
        """Whether the next request may be sent here. Responses that are due come in any case."""
        if self.closed:
            return False
        return self.is_waiting or not (self._is_over or self._has_ended)

    @property
    def is_waiting(self) -> bool:
        """Whether a response is due."""
        return bool(self._due)

    @property
    def _has_ended(self) -> bool:
        """Whether the broker has closed the connection while no response was due: it was idle for
        connections.max.idle.ms, or the broker was restarted. Bytes that no request has asked for
        are taken for the same; with TLS they are its close_notify."""
        arrived = select.poll()
        arrived.register(self._socket, select.POLLIN)
        return bool(arrived.poll(0))

    @property
    def _is_over(self) -> bool:
        """Whether the session has ended."""
        return 0 < self._ends_ns <= self._clock.monotonic_ns()

    def certificate_not_after_s(self) -> float | None:
        """When the certificate of the broker expires, in seconds since 1970; None without TLS."""
        certificate: Mapping[str, str] = getattr(self._socket, "getpeercert", dict)()
        if not certificate:
            return None
        import ssl  # which its socket has imported

        return float(ssl.cert_time_to_seconds(certificate["notAfter"]))

    def log_in(self, login: ClientLogin, deadline_ns: int) -> None:
        """Authenticate, also on a link that is in use. KafkaError: the broker refuses, or sends no
        answer of a login; the link is closed, as one that is half logged in can do nothing."""
        try:
            self._log_in(login, deadline_ns)
        except ProtocolError as error:
            raise self._broken(f"sent a malformed answer to the login: {error}") from error
        except BaseException:
            self.close()
            raise

    def _log_in(self, login: ClientLogin, deadline_ns: int) -> None:
        from kbroker.peer.logging_in import again_after_ms, exchange  # not for those who need not

        self._again_ns = self._ends_ns = 0  # what is sent here comes through `send`
        steps, lifetime_ms = exchange(login, self.versions), 0
        try:
            api_key, version, body = next(steps)
            while True:
                self.send(api_key, version, body, deadline_ns)
                api_key, version, body = steps.send(self.receive(deadline_ns))
        except StopIteration as end:
            lifetime_ms = end.value
        now_ns = self._clock.monotonic_ns()
        self._ends_ns = now_ns + lifetime_ms * NS_PER_MS if lifetime_ms > 0 else 0
        after_ms = again_after_ms(lifetime_ms)
        if after_ms is not None:
            self._login = login
            self._again_ns = now_ns + after_ms * NS_PER_MS

    def _renew(self, deadline_ns: int) -> None:
        """Authenticate again if it is time, and no response is due that would come between."""
        if self._due or self._login is None:
            return
        if not self._again_ns <= self._clock.monotonic_ns() < self._ends_ns:
            return
        self.log_in(self._login, deadline_ns)

    def close(self) -> None:
        self.closed = True
        self._due.clear()
        self._socket.close()

    def version(self, api_key: ApiKey) -> int:
        """The highest version that both sides have."""
        lowest, highest = VERSIONS[api_key]
        offered = self.versions.get(int(api_key))
        if offered is None or offered[1] < lowest or offered[0] > highest:
            has = f"{offered[0]}-{offered[1]}" if offered is not None else "not at all"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} offers {api_key.label} {has}, we speak {lowest}-{highest}",
            )
        return min(offered[1], highest)

    def send(
        self,
        api_key: ApiKey,
        version: int,
        body: bytes,
        deadline_ns: int,
        *,
        expects_response: bool = True,
    ) -> None:
        if self._again_ns:
            self._renew(deadline_ns)
        if self._is_over:
            raise network_error(f"the session at {self.address} has ended; ask again")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & frames.CORRELATION_ID_MAX
        frame = frames.request_frame(api_key, version, correlation_id, self._client_id, body)
        try:
            self._wait_at_most_until(deadline_ns)
            self._socket.sendall(frame)
        except TimeoutError:
            raise self._late(api_key) from None
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:  # interrupted half-way: how much was sent is unknown
            self.close()
            raise
        if expects_response:
            self._due.append(_Due(correlation_id, api_key, version))

    def receive(self, deadline_ns: int) -> Reader:
        """The oldest response that is due, positioned after its header."""
        if not self._due:
            raise network_error(f"{self.address} closed the connection")
        due = self._due.popleft()
        try:
            size = int.from_bytes(self._read(limits.FRAME_SIZE_BYTES, deadline_ns), "big")
            if not frames.FRAME_BYTES_MIN <= size <= RESPONSE_BYTES_MAX:
                raise self._broken(f"sent a frame of {size} bytes")
            frame = self._read(size, deadline_ns)
        except TimeoutError:
            raise self._late(due.api_key) from None
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:
            self.close()
            raise
        correlation_id = frames.correlation_id_of(frame)
        if correlation_id != due.correlation_id:
            raise self._broken(
                f"answered correlation id {correlation_id}, expected {due.correlation_id}"
            )
        try:
            return frames.body_of(frame, due.api_key, due.version)
        except ProtocolError as error:
            raise self._broken(f"sent a malformed response: {error}") from error

    def _read(self, size: int, deadline_ns: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        have = 0
        while have < size:
            self._wait_at_most_until(deadline_ns)
            count = self._socket.recv_into(view[have:])
            if count == 0:
                raise self._lost(None)
            have += count
        return bytes(buffer)

    def _wait_at_most_until(self, deadline_ns: int) -> None:
        left_s = (deadline_ns - self._clock.monotonic_ns()) / 1e9
        self._socket.settimeout(max(left_s, _SHORTEST_WAIT_S))

    def _late(self, api_key: ApiKey) -> KafkaError:
        self.was_late = True
        self.close()
        text = f"{self.address} did not answer {api_key.label} in time"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)

    def _lost(self, error: OSError | None) -> KafkaError:
        self.close()
        because = f": {reason(error)}" if error is not None else ""
        return network_error(f"{self.address} closed the connection{because}")

    def _broken(self, how: str) -> KafkaError:
        self.close()
        return network_error(f"{self.address} {how}")


def open_link(
    address: Address,
    client_id: str,
    timeout_ms: int,
    clock: Clock,
    login: ClientLogin | None = None,
) -> Link:
    """Connects, asks for ApiVersions, in the newest form we know, then in the oldest; with TLS and
    a login where `login` has them. UserError: the broker's certificate is not accepted."""
    setup_ms = min(timeout_ms, SETUP_TIMEOUT_MS_MAX)
    deadline_ns = clock.monotonic_ns() + setup_ms * NS_PER_MS
    try:
        connected = socket.create_connection(
            (address.host, address.port), timeout=max(setup_ms / 1000, _SHORTEST_WAIT_S)
        )
    except TimeoutError:
        raise network_error(f"cannot connect to {address} within {setup_ms / 1000:g} s") from None
    except (OSError, UnicodeError) as error:
        raise network_error(f"cannot connect to {address}: {reason(error)}") from error
    if login is not None and login.tls is not None:
        left_s = (deadline_ns - clock.monotonic_ns()) / 1e9
        connected.settimeout(max(left_s, _SHORTEST_WAIT_S))
        connected = _speak_tls(address, connected, login.tls)
    link = Link(address, connected, client_id, clock)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.versions = _negotiate(link, deadline_ns)
        if login is not None and login.mechanism:
            link.log_in(login, deadline_ns)
    except ProtocolError as error:
        link.close()
        raise network_error(f"{address} sent a malformed ApiVersions: {error}") from error
    except BaseException:
        link.close()
        raise
    return link


def _speak_tls(address: Address, connected: socket.socket, tls: ClientTls) -> socket.socket:
    import ssl  # its client has it already

    try:
        return tls.context.wrap_socket(connected, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        raise UserError(
            f"{address}: its certificate is not accepted: {error.verify_message}",
            "see ssl.truststore.location, and connect by a name that is in the certificate",
        ) from None
    except TimeoutError:
        raise network_error(f"{address} did not answer TLS in time") from None
    except OSError as error:
        raise network_error(f"{address} does not speak TLS with us: {reason(error)}") from error


def _negotiate(link: Link, deadline_ns: int) -> dict[int, tuple[int, int]]:
    for version in (3, 0):
        link.send(ApiKey.API_VERSIONS, version, messages.encode_api_versions(version), deadline_ns)
        try:
            return messages.decode_api_versions(link.receive(deadline_ns), version)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
    raise network_error(f"{link.address} answers no version of ApiVersions")
