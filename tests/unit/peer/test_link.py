"""A link to a server that answers what it likes: nothing of it is believed."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kbroker.clock import NS_PER_MS, ManualClock, SystemClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.address import Address
from kbroker.peer.cluster import Cluster
from kbroker.peer.frames import RESPONSE_BYTES_MAX
from kbroker.peer.link import Link, open_link
from kbroker.security.client_login import ClientLogin
from kbroker.types import ApiKey

Answer = Callable[[bytes], bytes]
PATIENCE_MS = 60_000
# ApiVersions 3 and 0 with one API: Metadata 4-12.
VERSIONS_3 = b"\x00\x00\x02\x00\x03\x00\x04\x00\x0c\x00\x00\x00\x00\x00\x00"
UNSUPPORTED = b"\x00\x23\x00\x00\x00\x00"


@contextmanager
def server(*answers: Answer) -> Iterator[Address]:
    """One connection; each frame is answered by the next function, then the connection closes."""
    with server_of_connections(answers) as address:
        yield address


@contextmanager
def server_of_connections(*connections: tuple[Answer, ...]) -> Iterator[Address]:
    """The same for one connection after the other."""

    def serve(connected: socket.socket, answers: tuple[Answer, ...]) -> None:
        with connected:
            connected.settimeout(PATIENCE_MS / 1000)
            for answer in answers:
                size = int.from_bytes(_exactly(connected, 4), "big")
                connected.sendall(answer(_exactly(connected, size)))

    def serve_all() -> None:
        for answers in connections:
            serve(listening.accept()[0], answers)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve_all, daemon=True)  # a test that fails ends
        thread.start()
        yield Address("127.0.0.1", listening.getsockname()[1])
        thread.join(PATIENCE_MS / 1000)
        assert not thread.is_alive()


def _exactly(connected: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connected.recv(size - len(data))
    return data


def frame(body: bytes, *, correlation_id: bytes | None = None) -> Answer:
    def answer(request: bytes) -> bytes:
        head = request[4:8] if correlation_id is None else correlation_id
        return struct.pack(">i", len(head + body)) + head + body

    return answer


def refusal(*answers: Answer) -> KafkaError:
    with server(*answers) as address, pytest.raises(KafkaError) as raised:
        open_link(address, "test", PATIENCE_MS, SystemClock())
    return raised.value


def test_a_broker_that_knows_only_the_oldest_api_versions() -> None:
    oldest = b"\x00\x00\x00\x00\x00\x01\x00\x03\x00\x04\x00\x0c"
    with server(frame(UNSUPPORTED), frame(oldest)) as address:
        link = open_link(address, "test", PATIENCE_MS, SystemClock())
        assert link.versions == {3: (4, 12)}
        link.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (frame(VERSIONS_3, correlation_id=b"\x00\x00\x00\x07"), "answered correlation id 7"),
        (lambda request: b"\x00\x00\x00\x03abc", "frame of 3 bytes"),
        (lambda request: struct.pack(">I", RESPONSE_BYTES_MAX + 1), "sent a frame of"),
        (lambda request: b"\xff\xff\xff\xff", "sent a frame of"),
        (lambda request: b"\x00\x00\x00\x09abc", "closed the connection"),
        (lambda request: b"", "closed the connection"),
        (frame(b"\x00"), "malformed ApiVersions"),
        (frame(b"\x00\x00\x7f"), "malformed ApiVersions"),
    ],
)
def test_a_frame_that_is_no_answer_ends_the_link(answer: Answer, words: str) -> None:
    error = refusal(answer)
    assert error.code is ErrorCode.NETWORK_EXCEPTION
    assert words in error.message


def test_no_version_of_api_versions() -> None:
    assert "no version" in refusal(frame(UNSUPPORTED), frame(UNSUPPORTED)).message


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(KafkaError, match=r"cannot connect to no-such-host\.invalid:1: ") as raised:
        open_link(Address("no-such-host.invalid", 1), "test", PATIENCE_MS, SystemClock())
    assert "[Errno" not in raised.value.message


@pytest.mark.parametrize("name", ["a..b", "x" * 64])
def test_a_name_that_can_be_none(name: str) -> None:
    with pytest.raises(KafkaError, match=f"cannot connect to {name}:1: that is no name of a host"):
        open_link(Address(name, 1), "test", PATIENCE_MS, SystemClock())


# --- sessions that end before their connection (KIP-368) ------------------------------------------

# ApiVersions 3 with Metadata 4-12, SaslHandshake 0-1, SaslAuthenticate 0-1.
VERSIONS_OF_SASL = (
    b"\x00\x00\x04\x00\x03\x00\x04\x00\x0c\x00\x00\x11\x00\x00\x00\x01\x00"
    b"\x00\x24\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"
)
HANDSHAKE_ANSWER = b"\x00\x00\x00\x00\x00\x00"
METADATA_ANSWER = b"\x00\x00\x00\x2a"
LIFETIME_MS = 10_000


def authenticated(lifetime_ms: int = LIFETIME_MS, code: int = 0) -> bytes:
    head = code.to_bytes(2, "big") + b"\xff\xff\x00\x00\x00\x00"
    return head + lifetime_ms.to_bytes(8, "big")


def of_api(api_key: int, body: bytes) -> Answer:
    """An answer that is sent to a request of this API alone."""
    answer = frame(body)

    def checked(request: bytes) -> bytes:
        return answer(request) if request[:2] == api_key.to_bytes(2, "big") else b""

    return checked


def log_in(*, last: bytes | None = None) -> tuple[Answer, Answer]:
    return of_api(17, HANDSHAKE_ANSWER), of_api(36, last or authenticated())


def ask(link: Link, clock: ManualClock) -> int:
    deadline_ns = clock.monotonic_ns() + PATIENCE_MS * NS_PER_MS
    link.send(ApiKey.METADATA, 4, b"", deadline_ns)
    return link.receive(deadline_ns).int32()


def test_a_session_is_renewed_by_a_request_before_its_end() -> None:
    metadata, clock = of_api(3, METADATA_ANSWER), ManualClock()
    steps = (
        frame(VERSIONS_OF_SASL), *log_in(), metadata, *log_in(), metadata, metadata, *log_in(),
        metadata,
    )  # fmt: skip
    with server(*steps) as address:
        link = open_link(address, "test", PATIENCE_MS, clock, ClientLogin("PLAIN", "a", "b"))
        assert ask(link, clock) == 42
        clock.advance(LIFETIME_MS * 0.86)
        assert ask(link, clock) == 42
        assert ask(link, clock) == 42
        clock.advance(LIFETIME_MS * 0.86)
        assert ask(link, clock) == 42
        link.close()


def test_another_link_is_opened_after_a_session_has_ended() -> None:
    """Without a request that the broker would close the connection for."""
    metadata, clock = of_api(3, METADATA_ANSWER), ManualClock()
    first = (frame(VERSIONS_OF_SASL), *log_in(), metadata)
    second = (frame(VERSIONS_OF_SASL), *log_in(last=authenticated(0)), metadata)
    with server_of_connections(first, second) as address:
        cluster = Cluster(
            str(address), client_id="test", timeout_ms=PATIENCE_MS, clock=clock,
            login=ClientLogin("PLAIN", "a", "b"),
        )  # fmt: skip
        link = cluster.link(address)
        clock.advance(LIFETIME_MS / 2)
        assert cluster.link(address) is link and cluster.any_broker() == address
        deadline_ns = clock.monotonic_ns() + PATIENCE_MS * NS_PER_MS
        link.send(ApiKey.METADATA, 4, b"", deadline_ns)
        clock.advance(LIFETIME_MS)
        assert cluster.link(address) is link  # a response is due
        assert link.receive(deadline_ns).int32() == 42
        other = cluster.link(cluster.any_broker())
        assert other is not link and link.closed
        clock.advance(LIFETIME_MS)
        assert cluster.link(address) is other and ask(other, clock) == 42
        cluster.close()


def test_nothing_is_sent_after_a_session_has_ended() -> None:
    """The broker would close the connection, and the responses that are due would not come."""
    metadata, clock = of_api(3, METADATA_ANSWER), ManualClock()
    with server(frame(VERSIONS_OF_SASL), *log_in(), metadata) as address:
        link = open_link(address, "test", PATIENCE_MS, clock, ClientLogin("PLAIN", "a", "b"))
        deadline_ns = clock.monotonic_ns() + PATIENCE_MS * NS_PER_MS
        link.send(ApiKey.METADATA, 4, b"", deadline_ns)
        clock.advance(LIFETIME_MS)
        with pytest.raises(KafkaError, match="has ended") as raised:
            link.send(ApiKey.METADATA, 4, b"", deadline_ns)
        assert raised.value.code.retriable
        assert link.usable
        assert link.receive(deadline_ns).int32() == 42
        assert not link.usable
        link.close()


def test_a_renewal_that_is_refused_closes_the_link() -> None:
    clock = ManualClock()
    refused = authenticated(0, ErrorCode.SASL_AUTHENTICATION_FAILED)
    with server(frame(VERSIONS_OF_SASL), *log_in(), *log_in(last=refused)) as address:
        link = open_link(address, "test", PATIENCE_MS, clock, ClientLogin("PLAIN", "a", "b"))
        clock.advance(LIFETIME_MS * 0.9)
        with pytest.raises(KafkaError) as raised:
            ask(link, clock)
        assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED and link.closed


def test_a_renewal_whose_answer_is_malformed_closes_the_link() -> None:
    """A link that is half logged in would be taken for one that is usable."""
    clock = ManualClock()
    steps = (frame(VERSIONS_OF_SASL), *log_in(), *log_in(last=authenticated()[:-3]))
    with server(*steps) as address:
        link = open_link(address, "test", PATIENCE_MS, clock, ClientLogin("PLAIN", "a", "b"))
        clock.advance(LIFETIME_MS * 0.9)
        with pytest.raises(KafkaError, match="malformed answer to the login") as raised:
            ask(link, clock)
        assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
        assert link.closed and not link.usable


def test_a_refused_login_is_not_taken_for_a_broker_that_is_away() -> None:
    refused = authenticated(0, ErrorCode.SASL_AUTHENTICATION_FAILED)
    with server(frame(VERSIONS_OF_SASL), *log_in(last=refused)) as address:
        cluster = Cluster(
            str(address), client_id="test", timeout_ms=PATIENCE_MS, clock=SystemClock(),
            login=ClientLogin("PLAIN", "a", "b"),
        )  # fmt: skip
        with pytest.raises(KafkaError) as raised:
            cluster.any_broker()
        assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


# --- connections that the broker closes while nothing is due --------------------------------------


@pytest.mark.parametrize("last", [b"", b"\x00\x00"])
def test_an_idle_connection_that_has_ended_is_not_usable(last: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Link(Address("a", 1), ours, "test", SystemClock())
        assert link.usable
        deadline_ns = SystemClock().monotonic_ns() + PATIENCE_MS * NS_PER_MS
        link.send(ApiKey.METADATA, 4, b"", deadline_ns)
        theirs.sendall(frame(METADATA_ANSWER)(theirs.recv(1_000)[4:]))
        assert link.usable  # what has come is due
        assert link.receive(deadline_ns).int32() == 42
        assert link.usable
        if last:
            theirs.sendall(last)
        else:
            theirs.close()
        assert not link.usable
