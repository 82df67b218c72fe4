"""Channels of a listener that authenticates: frames come one at a time until one opens the channel.

The frames may be anything, tokens without a header too, so nothing of them is looked at in C.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from contextlib import suppress

import pytest

from kbroker._net import WrappedRequest
from kbroker.errors import InvariantError
from kbroker.net._sessions import connections, references
from kbroker.security.session import ANONYMOUS, Principal
from kbroker.testing._masked_transport import MaskedTransport
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import produce_frame, produced_in
from tests.unit.net.harness import Client, Gate, Rig, cold_frame, echo, eventually, framed
from tests.unit.net.masked import MaskedClient

TOKEN_BYTES_MAX = 512 << 10
ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
FAILED = "an authentication that failed"
LATE = "a handshake or an authentication that took too long"


class Authenticator:
    """Opens for "let me in", refuses "no", and answers what it got otherwise."""

    def __init__(self) -> None:
        self.tokens: list[bytes] = []
        self.principals: list[Principal] = []
        self.held: list[WrappedRequest] = []
        self.holds = False

    def __call__(self, request: WrappedRequest) -> None:
        self.principals.append(request.principal)
        if not request.authenticates:
            request.respond(request.body)
            return
        self.tokens.append(request.body)
        if self.holds:
            self.held.append(request)
        elif request.body == b"let me in":
            request.open_channel(b"welcome", ALICE)
        elif request.body == b"no":
            request.refuse(b"never")
        elif request.body == b"go":
            request.refuse()
        else:
            request.respond(request.body)


@pytest.fixture
def authenticator() -> Authenticator:
    return Authenticator()


@pytest.fixture(params=["plain", "masked"])
def connect(
    request: pytest.FixtureRequest, make_rig: Callable[..., Rig], authenticator: Authenticator
) -> Callable[[], Client]:
    is_masked = request.param == "masked"
    transport = MaskedTransport() if is_masked else None
    door = Principal("User", f"before {uuid.uuid4()}")  # others' rigs may be freed meanwhile
    rig = make_rig(
        dispatch=authenticator,
        listener={"authenticates": True, "transport": transport, "principal": door},
    )

    def client() -> Client:
        kind = MaskedClient if is_masked else Client
        return rig.connected(kind(rig.port))

    client.rig = rig  # type: ignore[attr-defined]
    client.door = door  # type: ignore[attr-defined]
    return client


def rig_of(connect: Callable[[], Client]) -> Rig:
    rig = connect.rig  # type: ignore[attr-defined]
    assert isinstance(rig, Rig)
    return rig


def closes(connect: Callable[[], Client], reason: str) -> int:
    return rig_of(connect).server.closes()[reason]


def test_tokens_are_answered_as_they_are_and_then_requests_follow(
    connect: Callable[[], Client], authenticator: Authenticator
) -> None:
    client = connect()
    for token in (b"", b"x", b"\0\x12\0\x03" + b"y" * 100, b"z" * 70_000):
        client.send(framed(token))
        assert client.receive() == token
    client.send(framed(b"let me in"))
    assert client.receive() == b"welcome"
    client.send(cold_frame(b"a request", 7))
    assert client.receive_cold() == (7, b"a request")
    assert authenticator.tokens[-1] == b"let me in"


def test_frames_after_the_last_token_are_requests(
    connect: Callable[[], Client], authenticator: Authenticator
) -> None:
    topic = rig_of(connect).create("t")
    produces = [
        produce_frame(9, [(topic, {0: build_batch([b"v"])})], correlation_id=at) for at in range(20)
    ]
    client = connect()
    client.send(framed(b"let me in") + b"".join(produces) + cold_frame(b"end", 99))
    assert client.receive() == b"welcome"
    for at in range(20):
        correlation_id, partitions = produced_in(9, client.receive())
        assert (correlation_id, [p.error for p in partitions.values()]) == (at, [0])
    assert client.receive_cold() == (99, b"end")
    assert authenticator.tokens == [b"let me in"]


def test_one_token_at_a_time(connect: Callable[[], Client], authenticator: Authenticator) -> None:
    authenticator.holds = True
    client = connect()
    client.send(framed(b"1") + framed(b"2") + framed(b"3"))
    for at in (b"1", b"2", b"3"):
        eventually(lambda: authenticator.held)
        assert len(authenticator.held) == 1 and rig_of(connect).total("requests") == int(at)
        authenticator.held.pop().respond(at)
        assert client.receive() == at


def test_a_refusal_is_sent_and_then_the_end(connect: Callable[[], Client]) -> None:
    client = connect()
    client.send(framed(b"no") + framed(b"let me in"))
    assert client.receive() == b"never"
    assert client.ended()
    assert closes(connect, FAILED) == 1


def test_a_refusal_is_not_lost_to_a_reset(connect: Callable[[], Client]) -> None:
    """A socket that is closed while bytes wait in it resets the connection."""
    client = connect()
    client.send(framed(b"no") + framed(b"x" * 500_000))
    assert client.receive() == b"never"
    client.send(framed(b"y" * 100_000))
    assert client.read(1) == b""
    client.close()
    eventually(lambda: rig_of(connect).total("connections") == 0)


def test_a_client_that_stays_after_its_refusal_is_closed(connect: Callable[[], Client]) -> None:
    client = connect()
    client.send(framed(b"no"))
    assert client.receive() == b"never"
    assert client.ended()
    eventually(lambda: rig_of(connect).total("connections") == 0)
    assert closes(connect, LATE) == 0


def test_a_frame_of_an_authentication_has_its_time(make_rig: Callable[..., Rig]) -> None:
    """However often a byte of it comes."""
    rig = make_rig(
        dispatch=echo, opening_ms_max=100, listener={"authenticates": True, "principal": ANONYMOUS}
    )
    client = rig.client()
    client.send(framed(b"first"))
    assert client.receive() == b"first"
    token = iter(framed(b"x" * 1000))

    def is_closed() -> bool:
        with suppress(ConnectionError):
            client.send(bytes([next(token)]))
        return rig.total("connections") == 0

    eventually(is_closed)
    assert rig.server.closes()[LATE] == 1


def test_a_handler_has_its_time(make_rig: Callable[..., Rig]) -> None:
    gate = Gate()
    rig = make_rig(
        dispatch=gate,
        opening_ms_max=1_500,
        listener={"authenticates": True, "principal": ANONYMOUS},
    )
    client = rig.client()
    client.send(framed(b"first"))
    gate.wait_for(1)
    eventually(rig.silent_for_a_second)
    (request,) = gate.held
    request.open_channel(b"welcome", BOB)
    assert client.receive() == b"welcome"
    eventually(rig.silent_for_a_second)
    rig.dispatch = echo
    client.send(cold_frame(b"x", 1))
    assert client.receive_cold() == (1, b"x")


def test_a_frame_of_an_authentication_is_not_throttled(connect: Callable[[], Client]) -> None:
    said = []

    def throttles(request: WrappedRequest) -> None:
        with pytest.raises(InvariantError) as raised:
            request.throttle(100)
        said.append(str(raised.value))
        request.open_channel(b"welcome", BOB)

    rig_of(connect).dispatch = throttles
    client = connect()
    client.send(framed(b"x"))
    assert client.receive() == b"welcome"
    assert said == ["a frame of an authentication is not throttled"]
    assert sum(rig_of(connect).server.closes().values()) == 0


def test_a_refusal_without_words(connect: Callable[[], Client]) -> None:
    client = connect()
    client.send(framed(b"go"))
    assert client.ended()
    assert closes(connect, FAILED) == 1


@pytest.mark.parametrize("size", [-1, -(1 << 31), TOKEN_BYTES_MAX + 1, (1 << 31) - 1])
def test_a_size_that_no_token_can_have_closes(
    connect: Callable[[], Client], authenticator: Authenticator, size: int
) -> None:
    client = connect()
    client.send(struct.pack(">i", size) + b"let me in")
    assert client.ended()
    assert authenticator.tokens == []
    assert closes(connect, "a frame size out of bounds") == 1


def test_the_largest_token(connect: Callable[[], Client]) -> None:
    client = connect()
    client.send(framed(b"t" * TOKEN_BYTES_MAX))
    assert client.receive() == b"t" * TOKEN_BYTES_MAX


def test_an_open_channel_takes_no_empty_frame(connect: Callable[[], Client]) -> None:
    client = connect()
    client.send(framed(b"let me in"))
    assert client.receive() == b"welcome"
    client.send(framed(b""))
    assert client.ended()


def test_a_channel_opens_once(connect: Callable[[], Client]) -> None:
    refused = []

    def opens(request: WrappedRequest) -> None:
        try:
            request.open_channel(b"welcome", BOB)
        except InvariantError:
            refused.append(request.body)
            request.respond(request.body)

    rig_of(connect).dispatch = opens
    client = connect()
    client.send(framed(b"x"))
    assert client.receive() == b"welcome"
    client.send(cold_frame(b"y", 1))
    assert client.receive_cold() == (1, b"y")
    assert refused == [b"y"] and references(BOB) == 1
    client.close()
    eventually(lambda: references(BOB) == 0)


def test_a_dropped_token_closes(
    connect: Callable[[], Client], authenticator: Authenticator
) -> None:
    authenticator.holds = True
    client = connect()
    client.send(framed(b"x"))
    eventually(lambda: authenticator.held)
    authenticator.held.clear()
    assert client.ended()


def test_an_end_while_a_token_is_answered(
    connect: Callable[[], Client], authenticator: Authenticator
) -> None:
    authenticator.holds = True
    client = connect()
    client.send(framed(b"x"))
    eventually(lambda: authenticator.held)
    client.end_sending()
    authenticator.held.pop().open_channel(b"welcome", ALICE)
    assert client.receive() == b"welcome"
    assert client.ended()


# --- the end of a session -------------------------------------------------------------------------


class Expiring(Authenticator):
    """Opens for a session that is over already; a request "renew" lets it last, and "ends" is
    answered with whether it has an end."""

    def __call__(self, request: WrappedRequest) -> None:
        if request.authenticates:
            request.open_channel(b"welcome", ALICE, 1)
        elif request.body == b"ends":
            request.respond(b"yes" if request.session_ends else b"no")
        elif request.body == b"renew":
            request.renew_session(b"renewed", 0)
        elif request.body == b"refuse":
            request.refuse(b"never")
        else:
            request.respond(request.body)


def handshake_frame(body: bytes, correlation_id: int, api_key: int = 17) -> bytes:
    return framed(struct.pack(">hhih", api_key, 1, correlation_id, -1) + body)


@pytest.fixture
def expired(connect: Callable[[], Client]) -> Client:
    rig_of(connect).dispatch = Expiring()
    client = connect()
    client.send(framed(b"token"))
    assert client.receive() == b"welcome"
    return client


def test_a_request_after_the_end_of_a_session_ends_the_connection(
    connect: Callable[[], Client], expired: Client
) -> None:
    expired.send(cold_frame(b"x", 1))
    assert expired.ended()
    assert closes(connect, "a session that was over") == 1


def test_a_hot_request_after_the_end_of_a_session(
    connect: Callable[[], Client], expired: Client
) -> None:
    topic = rig_of(connect).create("t")
    expired.send(produce_frame(9, [(topic, {0: build_batch([b"v"])})], correlation_id=1))
    assert expired.ended()
    assert closes(connect, "a session that was over") == 1


def test_authenticating_again_renews_a_session(
    connect: Callable[[], Client], expired: Client
) -> None:
    expired.send(handshake_frame(b"again", 1))
    assert expired.receive_cold() == (1, b"again")
    expired.send(handshake_frame(b"again", 2, 36))
    assert expired.receive_cold() == (2, b"again")
    expired.send(handshake_frame(b"ends", 3))
    assert expired.receive_cold() == (3, b"yes")
    expired.send(handshake_frame(b"renew", 4, 36) + cold_frame(b"ends", 5))
    assert expired.receive_cold() == (4, b"renewed")
    assert expired.receive_cold() == (5, b"no")
    assert closes(connect, "a session that was over") == 0


def test_an_open_channel_is_refused_after_its_answer(
    connect: Callable[[], Client], expired: Client
) -> None:
    expired.send(handshake_frame(b"refuse", 1))
    assert expired.receive_cold() == (1, b"never")
    assert expired.ended()
    assert closes(connect, FAILED) == 1


# --- sessions ------------------------------------------------------------------------------------


def open_connections(*principals: Principal) -> list[tuple[Principal, int]]:
    """Of the first listener."""
    found = {each: count for each, at, count in connections(1) if at == 0}
    return [(each, found[each]) for each in principals if each in found]


def test_requests_are_the_principals_once_the_channel_is_open(
    connect: Callable[[], Client], authenticator: Authenticator
) -> None:
    door: Principal = connect.door  # type: ignore[attr-defined]
    clients = [connect(), connect()]
    eventually(lambda: references(door) == 3)  # with the listener's
    assert open_connections(ALICE, door) == [(door, 2)]
    for client in clients:
        client.send(framed(b"let me in"))
        assert client.receive() == b"welcome"
        client.send(cold_frame(b"x", 1))
        assert client.receive_cold() == (1, b"x")
    assert authenticator.principals == [door, ALICE] * 2
    assert (references(ALICE), references(door)) == (2, 1)
    assert open_connections(ALICE, door) == [(ALICE, 2)]
    for client in clients:
        client.close()
    eventually(lambda: references(ALICE) == 0)
    assert references(door) == 1
    assert open_connections(ALICE, door) == []


def test_a_session_that_comes_too_late_is_dropped(
    connect: Callable[[], Client], authenticator: Authenticator
) -> None:
    authenticator.holds = True
    client = connect()
    client.send(framed(b"x"))
    eventually(lambda: authenticator.held)
    client.reset()
    eventually(lambda: rig_of(connect).total("connections") == 0)
    authenticator.held.pop().open_channel(b"welcome", ALICE)
    eventually(lambda: references(ALICE) == 0)


def test_sessions_without_clients_are_freed(
    connect: Callable[[], Client], authenticator: Authenticator
) -> None:
    kept, other = connect(), connect()
    names = iter(range(2000))
    rig_of(connect).dispatch = lambda request: request.open_channel(
        b"welcome", Principal("User", str(next(names)))
    )
    for client in (kept, other):
        client.send(framed(b"x"))
        assert client.receive() == b"welcome"
    other.close()
    eventually(lambda: references(Principal("User", "1")) == 0)
    for _ in range(600):
        client = connect()
        client.send(framed(b"x"))
        assert client.receive() == b"welcome"
        client.close()
    assert references(Principal("User", "0")) == 1
    assert references(Principal("User", "1")) is None
