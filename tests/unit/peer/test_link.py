"""A link to a server that answers what it likes: nothing of it is believed."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kbroker.clock import SystemClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.address import Address
from kbroker.peer.frames import RESPONSE_BYTES_MAX
from kbroker.peer.link import open_link

Answer = Callable[[bytes], bytes]
PATIENCE_MS = 60_000
# ApiVersions 3 and 0 with one API: Metadata 4-12.
VERSIONS_3 = b"\x00\x00\x02\x00\x03\x00\x04\x00\x0c\x00\x00\x00\x00\x00\x00"
UNSUPPORTED = b"\x00\x23\x00\x00\x00\x00"


@contextmanager
def server(*answers: Answer) -> Iterator[Address]:
    """One connection; each frame is answered by the next function, then the connection closes."""

    def serve() -> None:
        connected, _ = listening.accept()
        with connected:
            connected.settimeout(PATIENCE_MS / 1000)
            for answer in answers:
                size = int.from_bytes(_exactly(connected, 4), "big")
                connected.sendall(answer(_exactly(connected, size)))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
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
def test_what_is_no_answer_ends_the_link(answer: Answer, words: str) -> None:
    error = refusal(answer)
    assert error.code is ErrorCode.NETWORK_EXCEPTION
    assert words in error.message


def test_no_version_of_api_versions() -> None:
    assert "no version" in refusal(frame(UNSUPPORTED), frame(UNSUPPORTED)).message


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(KafkaError, match=r"cannot connect to no-such-host\.invalid:1: ") as raised:
        open_link(Address("no-such-host.invalid", 1), "test", PATIENCE_MS, SystemClock())
    assert "[Errno" not in raised.value.message
