"""Peers of a TLS listener: who they are by their certificates, and hostile ones."""

from __future__ import annotations

import random
import socket
import ssl
import struct
from contextlib import suppress

import pytest

from kbroker._net import WrappedRequest
from kbroker.errors import InvariantError
from kbroker.net._tls_transport import ENDED, LATE_MESSAGES
from kbroker.security.session import Principal
from tests.support.certificates import Authority, Certificate, client_context
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import produce_one
from tests.unit.net.harness import DEADLINE_S, Rig, cold_frame, eventually
from tests.unit.net.over_tls import VERSIONS, MakeRig, Over, TlsClient, tls_context

# --- who the client is ----------------------------------------------------------------------------


class Opener:
    """Opens the channels of clients with a certificate, and answers requests with their principal;
    `holds`: it keeps what came of the handshake."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.held: list[WrappedRequest] = []
        self.holds = False

    def __call__(self, request: WrappedRequest) -> None:
        if not request.names_peer:
            request.respond(str(request.principal).encode())
            return
        assert not request.authenticates
        self.names.append(request.body)
        if self.holds:
            self.held.append(request)
        elif b"no user" in request.body:
            request.refuse()
        else:
            request.open_channel(None, Principal("User", request.body[-6:].decode()))


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def asking(make_rig: MakeRig, authority: Authority, broker: Certificate, opener: Opener) -> Over:
    trusted = authority.certificate.read_bytes()
    context = tls_context(broker, client_auth="requested", trusted=trusted)
    return Over(make_rig, authority, context, dispatch=opener)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_those_of_the_certificate_s_name(
    asking: Over, opener: Opener, authority: Authority, version: str
) -> None:
    clients = {
        name: asking.client(certificate=authority.issue(name), version=version)
        for name in ("client", "second")
    }
    anonymous = asking.client(version=version)
    for at in range(3):
        for name, client in clients.items():
            client.send(cold_frame(b"", at))
            assert client.receive_cold() == (at, f"User:{name}".encode())
        anonymous.send(cold_frame(b"", at))
        assert anonymous.receive_cold() == (at, b"User:ANONYMOUS")
    assert [name[-6:] for name in opener.names] == [b"client", b"second"]


def test_nothing_is_read_before_the_channel_is_open(
    asking: Over, opener: Opener, other: Certificate
) -> None:
    opener.holds = True
    client = asking.client(certificate=other)
    client.send(cold_frame(b"", 1))
    topic = asking.rig.create("t")
    eventually(lambda: opener.held)
    client.all_delivered()
    assert asking.rig.total("requests") == 1
    opener.held[0].open_channel(None, Principal("User", "late"))
    assert client.receive_cold() == (1, b"User:late")
    assert produce_one(client, topic, build_batch([b"v"])).error == 0


def test_a_client_that_is_no_user_gets_no_answer(
    asking: Over, opener: Opener, authority: Authority
) -> None:
    client = asking.client(certificate=authority.issue("no user"))
    client.send(cold_frame(b"", 1))
    assert client.ended()
    assert asking.rig.server.closes()["an authentication that failed"] == 1


def test_a_client_that_leaves_meanwhile(asking: Over, opener: Opener, other: Certificate) -> None:
    opener.holds = True
    client = asking.client(certificate=other)
    eventually(lambda: opener.held)
    client.reset()
    eventually(lambda: asking.rig.total("connections") == 0)
    opener.held[0].open_channel(None, Principal("User", "gone"))
    eventually(lambda: asking.rig.total("live_requests") == 0)


def test_a_name_that_is_too_long_ends_the_connection(
    asking: Over, opener: Opener, authority: Authority
) -> None:
    long = authority.issue("long", subject="/CN=x" + "/OU=" + "y" * 60 + ("/OU=" + "z" * 60) * 250)
    client = asking.client(certificate=long, version="TLSv1.2")
    assert client.socket.recv(1) == b""
    assert opener.names == []


def test_a_name_has_no_answer_and_is_not_throttled(
    asking: Over, opener: Opener, other: Certificate
) -> None:
    opener.holds = True
    client = asking.client(certificate=other)
    (held,) = eventually(lambda: opener.held)
    with pytest.raises(InvariantError):
        held.throttle(10)
    with pytest.raises(InvariantError):
        held.respond(b"")
    held.refuse()
    assert client.ended()


# --- what clients do wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (cold_frame(b"plain", 1), "wrong version number"),
        (b"GET / HTTP/1.1\r\n\r\n", "http request"),
        (b"\x16\x03\x01\x40\x01" + b"x" * 0x4001, "data length too long"),
        (b"\x80\x2e\x01\x00\x02" + bytes(43), None),  # a hello of SSLv2
        (b"\x15\x03\x01\x00\x02\x02\x28", None),  # an alert
        (b"\x16\x03\x01\x00\x00" * 100, None),
    ],
    ids=["kafka", "http", "16 KB + 1", "SSLv2", "alert", "empty records"],
)
def test_bytes_that_are_no_handshake_end_the_connection(
    over: Over, sent: bytes, reason: str | None
) -> None:
    client = over.plain()
    with suppress(OSError):
        client.socket.sendall(sent)
        while client.socket.recv(1000):
            pass
    found = over.failure()
    assert found[2:] == (1, "127.0.0.1")
    assert reason is None or found[0] == reason
    assert over.rig.total("requests") == 0


def test_a_client_of_tls_at_a_listener_without_it(rig: Rig, authority: Authority) -> None:
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        TlsClient(rig.port, client_context(authority))
    (cause,) = [each for each in rig.server.closes() if each.startswith("TLS on a listener")]
    assert rig.server.closes()[cause] == 1
    assert rig.server.closes()["a frame size out of bounds"] == 0


def test_a_client_gets_the_alert_that_says_why(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    trusted = authority.certificate.read_bytes()
    over = Over(make_rig, authority, tls_context(broker, client_auth="required", trusted=trusted))
    for _ in range(20):
        client = over.client(version="TLSv1.3")
        with suppress(BrokenPipeError):
            client.send(cold_frame(b"x" * 50_000, 1))  # it waits in the broker's socket
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            client.socket.recv(1)


def hello(authority: Authority) -> bytes:
    """The first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = client_context(authority)
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("seed", range(4))
def test_hellos_that_were_changed(over: Over, authority: Authority, seed: int) -> None:
    dice = random.Random(seed)
    whole = hello(authority)
    for _ in range(100):
        changed = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 20))):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        del changed[dice.choice((len(changed), dice.randrange(len(changed)))) :]
        with over.plain().socket as client, suppress(OSError):
            client.sendall(changed)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    eventually(lambda: over.rig.total("connections") == 0)
    served = over.client()
    served.send(cold_frame(b"x", 1))
    assert served.receive_cold() == (1, b"x")


def test_a_hello_in_single_bytes(over: Over) -> None:
    """A client that takes all the time it has; others are served meanwhile."""
    context = client_context(over.authority)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    opened = over.plain()
    neighbour = over.client()
    finished = False
    while not finished:
        try:
            client.do_handshake()
            finished = True
        except ssl.SSLWantReadError:
            pass
        for at, byte in enumerate(outgoing.read()):
            opened.socket.sendall(bytes([byte]))
            if at % 50 == 0:
                opened.all_delivered()
                neighbour.send(cold_frame(b"n", at))
                assert neighbour.receive_cold() == (at, b"n")
        if not finished:
            incoming.write(opened.socket.recv(1 << 16))
    client.write(cold_frame(b"x", 7))
    opened.send(outgoing.read())
    answer = b""
    while len(answer) < 9:
        incoming.write(opened.socket.recv(1 << 16))
        with suppress(ssl.SSLWantReadError):
            answer += client.read(100)
    assert answer == struct.pack(">ii", 5, 7) + b"x"


def test_half_a_hello_and_then_the_end(over: Over) -> None:
    client = over.plain()
    client.socket.sendall(b"\x16\x03\x01\x02\x00\x01")
    client.end_sending()
    assert client.socket.recv(100) == b""
    assert over.failure()[0] == ENDED


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_hello_has_its_time(
    make_rig: MakeRig, authority: Authority, broker: Certificate, sent: bytes
) -> None:
    over = Over(make_rig, authority, tls_context(broker), opening_ms_max=100)
    client = over.plain()
    client.socket.sendall(sent)
    assert client.socket.recv(1) == b""
    late = "a handshake or an authentication that took too long"
    assert over.rig.server.closes()[late] == 1


def test_a_record_that_was_changed_ends_the_connection(over: Over) -> None:
    client = over.client()
    client.send(cold_frame(b"x", 1))
    assert client.receive_cold() == (1, b"x")
    raw = socket.socket(fileno=client.tls.detach())
    raw.settimeout(DEADLINE_S)
    raw.sendall(b"\x17\x03\x03\x00\x20" + b"z" * 32)
    with suppress(ConnectionResetError):
        while raw.recv(100):
            pass
    raw.close()
    eventually(lambda: over.rig.total("connections") == 0)
    (found,) = over.transport.take_failures()
    assert found[0] == "decryption failed or bad record mac"


def test_key_updates_are_answered(over: Over) -> None:
    with over.raw() as client:
        for at in range(20):
            assert client.update_key(both=True)
            assert client.write(cold_frame(b"x", at))
            assert client.read()[8:] == b"x"


def test_too_many_key_updates_end_the_connection(over: Over) -> None:
    with over.raw() as client:
        while client.update_key():
            pass
        assert client.read() == b""
    eventually(lambda: over.rig.total("connections") == 0)
    (found,) = over.transport.take_failures()
    assert found[0] == LATE_MESSAGES


def test_key_updates_beside_much_data_are_no_attack(over: Over) -> None:
    with over.raw() as client:
        for at in range(100):
            assert client.update_key()
            assert client.write(cold_frame(b"x" * 50_000, at))
            left = 50_008
            while left:
                left -= len(client.read())


def test_nothing_is_renegotiated(over: Over) -> None:
    with over.raw(tls_1_2=True) as client:
        assert client.write(cold_frame(b"x", 1))
        assert client.read()[8:] == b"x"
        assert not client.renegotiate()
