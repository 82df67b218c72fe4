"""Peers that keep a network thread busy without data, or hold memory that they should not."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kbroker.net._tls_transport import LATE_MESSAGES, LONG_HANDSHAKE
from tests.support.certificates import Authority, Certificate, client_context
from tests.support.raw_tls import ALERT, DATA, HANDSHAKE, HELLO, RawTls
from tests.unit.net.harness import cold_frame, eventually
from tests.unit.net.over_tls import FAILED, MakeRig, Over, tls_context


@pytest.fixture
def raw(over: Over) -> Iterator[Callable[[], RawTls]]:
    made: list[RawTls] = []

    def connect() -> RawTls:
        made.append(RawTls(over.rig.port, over.authority))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def send_until_ended(client: RawTls, record: Callable[[], bytes], bytes_max: int) -> int:
    """How many bytes of such records the broker let come."""
    sent = 0
    with suppress(ConnectionError):
        while sent < bytes_max:
            piece = b"".join(record() for _ in range(200))
            client.socket.sendall(piece)
            sent += len(piece)
    return sent


def test_requests_to_renegotiate_end_the_connection(over: Over, raw: Callable[[], RawTls]) -> None:
    """Whatever OpenSSL does with each of them."""
    client = raw()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # alerts are not read
    sent = send_until_ended(client, lambda: client.record(HANDSHAKE, HELLO), 64 << 20)
    assert sent < 32 << 20
    assert client.ended()
    eventually(lambda: over.rig.total("connections") == 0)
    (found,) = over.transport.take_failures()
    assert found[0] == LATE_MESSAGES


def test_others_are_served_beside_a_flood(over: Over, raw: Callable[[], RawTls]) -> None:
    neighbour = over.client()
    for at in range(5):
        client = raw()
        records = b"".join(client.record(HANDSHAKE, HELLO) for _ in range(2_000))
        with suppress(ConnectionError):
            client.socket.sendall(records)
        neighbour.send(cold_frame(b"x", at))
        assert neighbour.receive_cold() == (at, b"x")


def test_warnings_end_the_connection(over: Over, raw: Callable[[], RawTls]) -> None:
    client = raw()
    with suppress(ConnectionError):
        for _ in range(100):
            client.send(ALERT, b"\x01\x5a")  # user canceled
    assert client.ended()
    eventually(lambda: over.rig.total("connections") == 0)


def test_empty_records_end_the_connection(over: Over, raw: Callable[[], RawTls]) -> None:
    client = raw()
    send_until_ended(client, lambda: client.record(DATA, b""), 4 << 20)
    assert client.ended()
    eventually(lambda: over.rig.total("connections") == 0)


def test_records_of_one_byte_are_data(over: Over, raw: Callable[[], RawTls]) -> None:
    client = raw()
    frames = b"".join(cold_frame(b"x" * 1_000, at) for at in range(10))
    for at in range(0, len(frames), 500):
        part = frames[at : at + 500]
        client.socket.sendall(b"".join(client.record(DATA, bytes([each])) for each in part))
    eventually(lambda: over.rig.total("responses") == 10)


def test_a_message_of_a_handshake_in_single_bytes(over: Over, raw: Callable[[], RawTls]) -> None:
    client = raw()
    with suppress(ConnectionError):
        for each in b"\x0e\x00\x10\x00" + bytes(4_096):  # of 4 KB, where none is expected
            client.send(HANDSHAKE, bytes([each]))
    assert client.ended()
    eventually(lambda: over.rig.total("connections") == 0)


def test_the_reason_is_known_where_data_came_before(over: Over, raw: Callable[[], RawTls]) -> None:
    """A good record and a broken one, found in one receive."""
    client = raw()
    good = client.record(DATA, cold_frame(b"x", 1))
    bad = bytearray(client.record(DATA, b"y"))
    bad[-1] ^= 1
    client.socket.sendall(good + bad)
    assert client.ended()
    eventually(lambda: over.rig.total("connections") == 0)
    (found,) = over.transport.take_failures()
    assert found[0] in ("cipher operation failed", "decryption failed or bad record mac")


# --- handshakes -----------------------------------------------------------------------------------


def long_hello(length: int) -> bytes:
    """The first records of a ClientHello that says it has so many bytes; it never ends."""
    body = b"\x01" + length.to_bytes(3, "big") + b"\x03\x03" + bytes(200_000)
    pieces = (body[at : at + 16_384] for at in range(0, length, 16_384))
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(each)) + each for each in pieces)


def test_a_handshake_has_a_bound_of_bytes(over: Over) -> None:
    client = over.plain()
    with suppress(ConnectionError):
        client.socket.sendall(long_hello(131_000)[:-10])
        assert client.socket.recv(1) == b""
    eventually(lambda: over.rig.server.closes()[FAILED] == 1)
    assert over.failure()[0] == LONG_HANDSHAKE


def test_certificates_of_clients_have_more_room(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    trusted = authority.certificate.read_bytes()
    over = Over(make_rig, authority, tls_context(broker, client_auth="requested", trusted=trusted))
    large = authority.issue("large", names=tuple(f"DNS:{'x' * 60}.{at}" for at in range(900)))
    client = over.client(certificate=large)  # 64 KB of alternative names
    client.send(cold_frame(b"x", 1))
    assert client.receive_cold() == (1, b"x")


def test_a_write_to_a_peer_that_is_gone_ends_only_the_connection(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    """As a program would that has SIGPIPE's default: here it is the write that is asked."""
    over = Over(make_rig, authority, tls_context(broker), send_buffer_bytes=8192)
    for _ in range(20):
        client = over.client(receive_bytes=8192)
        client.send(cold_frame(b"a" * 200_000, 1))
        client.socket.recv(1)
        client.reset()
    eventually(lambda: over.rig.total("connections") == 0)


@pytest.mark.slow
def test_connections_leave_no_memory(over: Over) -> None:
    """Half of them shake hands, the others end in the midst of it."""

    context = client_context(over.authority)

    def connect(count: int) -> None:
        for at in range(count):
            with socket.create_connection(("127.0.0.1", over.rig.port)) as client:
                if at % 2:
                    context.wrap_socket(client, server_hostname="localhost").close()
                else:
                    client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            if at % 50 == 0:
                eventually(lambda: over.rig.total("connections") == 0)
        eventually(lambda: over.rig.total("connections") == 0)

    connect(1_000)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    connect(4_000)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert grown_kb < 2_048
