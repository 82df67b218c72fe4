"""Clients that authenticate again: when they may, as which principal, and how sessions end."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kbroker.clock import NS_PER_MS, ManualClock
from kbroker.handlers.authentication import Authentication, Offered
from kbroker.handlers.registry import REGISTRY
from kbroker.limits import SASL_SESSIONS_MAX
from kbroker.protocol import messages
from kbroker.purgatory.timer import Timer
from kbroker.security.mechanism import CredentialsError, Login
from kbroker.security.session import Principal
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker
from tests.unit.handlers.test_authentication import Frame, authenticate, handshake, response

ALICE = Principal("User", "alice")
LIFETIME_MS = 60_000
HANDSHAKE, AUTHENTICATE = messages.sasl_handshake, messages.sasl_authenticate


class Named:
    """Lets every name in, until a time, if it has one: "alice", "alice 1000"; not "eve". "token" is
    one of alice."""

    def __init__(self) -> None:
        self.login: Login | None = None
        self.claimed = "anna"

    def evaluate(self, token: bytes) -> bytes:
        name, _, expires = token.decode().partition(" ")
        by_token = name == "token"
        name = "alice" if by_token else name
        if name == "hello":
            return b"welcome"
        if name == "eve":
            raise CredentialsError("not eve")
        self.login = Login(name, by_token, int(expires) if expires else None)
        return b"bye"


class Request:
    """Of an open channel."""

    authenticates = False
    listener, peer_host, principal = "SECURE", "127.0.0.1", ALICE

    def __init__(self, key: ApiKey, version: int, body: bytes, connection: str) -> None:
        self.api_key, self.api_version, self.body = key, version, body
        self.connection_id = connection
        self.ends: list[tuple[str, bytes | None]] = []
        self.expires_ns = -1
        self.session_ends = True

    def close_connection(self, reason: str) -> None:
        self.ends.append(("close", None))

    def respond(self, body: bytes) -> None:
        self.ends.append(("respond", body))

    def refuse(self, body: bytes | None = None) -> None:
        self.ends.append(("refuse", body))

    def renew_session(self, body: bytes, expires_ns: int) -> None:
        self.expires_ns = expires_ns
        self.ends.append(("renew", body))


class Rig:
    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.clock: ManualClock = self.broker.clock
        self.timer = Timer(self.clock)
        self.reauth_ms = LIFETIME_MS
        self.session_ends = True
        self.authentication = Authentication(
            REGISTRY,
            self.broker.services,
            lambda _: {
                "NAMED": Offered(Named, self.reauth_ms), "OTHER": Offered(Named, self.reauth_ms)
            },
            self.timer.call_later,
        )  # fmt: skip
        self.passed: list[Any] = []
        self.dispatch = self.authentication.before(self.passed.append)

    def open(self, token: bytes = b"alice", connection: str = "c", version: int = 2) -> Frame:
        self.dispatch(Frame(handshake("NAMED"), connection))
        frame = Frame(authenticate(token, version), connection)
        self.dispatch(frame)
        assert frame.answers[0][0] == "open"
        return frame

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance()

    def send(self, key: ApiKey, version: int, body: bytes, connection: str = "c") -> Request:
        request = Request(key, version, body, connection)
        request.session_ends = self.session_ends
        self.dispatch(request)
        return request

    def name(self, mechanism: str = "NAMED", version: int = 1) -> Request:
        body = HANDSHAKE.Request(mechanism=mechanism).encode(version)
        return self.send(ApiKey.SASL_HANDSHAKE, version, body)

    def token(self, token: bytes, version: int = 2) -> Request:
        body = AUTHENTICATE.Request(auth_bytes=token).encode(version)
        return self.send(ApiKey.SASL_AUTHENTICATE, version, body)

    def now_ns(self) -> int:
        return self.clock.monotonic_ms() * NS_PER_MS


@pytest.fixture
def rig() -> Rig:
    return Rig()


def body_of(request: Request, table: Any, version: int, how: str) -> Any:
    ((found, body),) = request.ends
    assert found == how and body is not None
    return table.Response.decode(body, version)


# --- lifetimes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reauth_ms", "expires_ms", "lifetime_ms"),
    [(0, None, 0), (5_000, None, 5_000), (0, 7_000, 7_000), (5_000, 7_000, 5_000),
     (9_000, 7_000, 7_000), (9_000, -1, -1), (0, 0, -1)],
)  # fmt: skip
def test_a_session_ends_with_the_first_of_its_bounds(
    rig: Rig, reauth_ms: int, expires_ms: int | None, lifetime_ms: int
) -> None:
    rig.reauth_ms = reauth_ms
    wall_ms = rig.clock.wall_ms()
    token = b"alice" if expires_ms is None else b"alice %d" % (wall_ms + expires_ms)
    frame = rig.open(token)
    answer = response(AUTHENTICATE, 2, frame.answers[0][1])
    assert answer.session_lifetime_ms == max(lifetime_ms, 0)
    if lifetime_ms == 0:
        assert frame.expires_ns == 0 and rig.authentication.again.sessions == 0
    else:
        assert frame.expires_ns == max(rig.now_ns() + lifetime_ms * NS_PER_MS, 1)


def test_an_old_version_does_not_say_the_lifetime(rig: Rig) -> None:
    frame = rig.open(version=0)
    assert frame.expires_ns == rig.now_ns() + LIFETIME_MS * NS_PER_MS


# --- again ----------------------------------------------------------------------------------------


def test_a_session_is_renewed(rig: Rig) -> None:
    rig.open()
    for _ in range(3):
        rig.advance(50_000)
        named = body_of(rig.name(), HANDSHAKE, 1, "respond")
        assert (named.error_code, named.mechanisms) == (0, ["NAMED", "OTHER"])
        for version in (1, 2):
            said = body_of(rig.token(b"hello", version), AUTHENTICATE, version, "respond")
            assert (said.error_code, said.auth_bytes) == (0, b"welcome")
            assert said.session_lifetime_ms == 0
        request = rig.token(b"alice")
        answer = body_of(request, AUTHENTICATE, 2, "renew")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, LIFETIME_MS)
        assert request.expires_ns == rig.now_ns() + LIFETIME_MS * NS_PER_MS
    counts = rig.authentication.counts()["SECURE"]
    assert (counts.successful, counts.successful_again, counts.failed_again) == (1, 3, 0)
    assert rig.passed == []


def test_a_session_that_is_over_may_be_renewed(rig: Rig) -> None:
    rig.open()
    rig.advance(LIFETIME_MS + 5_000)
    rig.name()
    body_of(rig.token(b"alice"), AUTHENTICATE, 2, "renew")


def test_a_lifetime_that_was_taken_away(rig: Rig) -> None:
    rig.open()
    rig.advance(2_000)
    rig.reauth_ms = 0
    rig.name()
    request = rig.token(b"alice")
    assert request.expires_ns == 0 and rig.authentication.again.sessions == 0


# --- what is no start -----------------------------------------------------------------------------


def test_without_a_lifetime_there_is_no_start(rig: Rig) -> None:
    rig.reauth_ms = 0
    rig.open()
    rig.advance(5_000)
    rig.session_ends = False
    request, token = rig.name(), rig.token(b"alice")
    assert rig.passed == [request, token] and request.ends == token.ends == []


def test_a_start_within_a_second_is_none(rig: Rig) -> None:
    rig.open()
    assert rig.name().ends == []
    rig.advance(999)
    assert rig.name().ends == []
    rig.advance(1)
    assert rig.name().ends != []
    assert rig.name().ends == []  # of the last start, too
    assert len(rig.passed) == 3


def test_a_token_without_a_start_is_none(rig: Rig) -> None:
    rig.open()
    rig.advance(5_000)
    assert rig.token(b"alice").ends == []
    rig.name()
    rig.token(b"alice")
    assert rig.token(b"alice").ends == []
    assert rig.name(version=0).ends == []
    assert rig.send(ApiKey.METADATA, 1, b"").ends == []
    assert len(rig.passed) == 4


@pytest.mark.parametrize("key", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_malformed_requests_are_left_to_the_dispatch(rig: Rig, key: ApiKey) -> None:
    rig.open()
    rig.advance(5_000)
    rig.name()
    rig.advance(5_000)
    request = rig.send(key, 1, b"\x7f\xff")
    assert rig.passed == [request]


def test_another_connection_is_another_session(rig: Rig) -> None:
    rig.open()
    rig.advance(5_000)
    body = HANDSHAKE.Request(mechanism="NAMED").encode(1)
    rig.session_ends = False
    request = rig.send(ApiKey.SASL_HANDSHAKE, 1, body, "other")
    assert rig.passed == [request]


# --- failures -------------------------------------------------------------------------------------


def refused(rig: Rig, request: Request, table: Any, version: int) -> Any:
    assert request.ends == []
    rig.advance(101)
    return body_of(request, table, version, "refuse")


def test_another_principal(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker.security")
    rig.open()
    rig.advance(5_000)
    rig.name()
    answer = refused(rig, rig.token(b"bob"), AUTHENTICATE, 2)
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert (answer.error_code, answer.error_message) == (58, text)
    assert f"Failed re-authentication with 127.0.0.1 ({text})" in caplog.text
    assert rig.authentication.counts()["SECURE"].failed_again == 1


def test_a_session_of_a_password_does_not_go_on_by_a_token(rig: Rig) -> None:
    """It may create tokens, which one that a token has opened may not: it would do so for ever,
    also when the password has gone."""
    rig.open()
    rig.advance(5_000)
    rig.name()
    answer = refused(rig, rig.token(b"token"), AUTHENTICATE, 2)
    assert answer.error_code == 58 and "delegation token" in answer.error_message


def test_a_session_of_a_token_goes_on_by_either(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Request, "principal", ALICE._replace(by_token=True))
    rig.open(b"token")
    for token in (b"token", b"alice"):
        rig.advance(5_000)
        rig.name()
        assert body_of(rig.token(token), AUTHENTICATE, 2, "renew").error_code == 0


def test_another_mechanism_fails_with_its_token(rig: Rig) -> None:
    rig.open()
    rig.advance(5_000)
    assert body_of(rig.name("OTHER"), HANDSHAKE, 1, "respond").error_code == 0
    assert refused(rig, rig.token(b"alice"), AUTHENTICATE, 2).error_code == 58


def test_an_unknown_mechanism(rig: Rig) -> None:
    rig.open()
    rig.advance(5_000)
    answer = refused(rig, rig.name("X"), HANDSHAKE, 1)
    assert (answer.error_code, answer.mechanisms) == (33, ["NAMED", "OTHER"])


def test_a_wrong_password(rig: Rig) -> None:
    rig.open()
    rig.advance(5_000)
    rig.name()
    answer = refused(rig, rig.token(b"eve"), AUTHENTICATE, 2)
    assert answer.error_code == 58 and "invalid credentials" in answer.error_message


# --- bounds ---------------------------------------------------------------------------------------


def test_sessions_are_forgotten_after_their_end(rig: Rig) -> None:
    for at in range(3):
        rig.open(connection=str(at))
    rig.advance(LIFETIME_MS + 600_001)
    rig.open(connection="new")
    assert rig.authentication.again.sessions == 1


def test_sessions_have_a_bound(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbroker.handlers import reauthentication

    assert SASL_SESSIONS_MAX > 1_000
    monkeypatch.setattr(reauthentication, "SASL_SESSIONS_MAX", 3)
    for at in range(5):
        rig.open(connection=str(at))
    assert rig.authentication.again.sessions == 3
    rig.advance(2_000)
    body = HANDSHAKE.Request(mechanism="NAMED").encode(1)
    # The logins of others do not end this client: it connects again.
    assert rig.send(ApiKey.SASL_HANDSHAKE, 1, body, "1").ends == [("close", None)]
    body_of(rig.send(ApiKey.SASL_HANDSHAKE, 1, body, "2"), HANDSHAKE, 1, "respond")
    assert not rig.passed


def test_sessions_that_are_renewed_keep_no_dead_ones(rig: Rig) -> None:
    """The first that opened may live longest."""
    rig.open()
    for number in range(5):
        rig.open(connection=f"gone {number}")
    for _ in range(14):
        rig.advance(50_000)
        rig.name()
        body_of(rig.token(b"alice"), AUTHENTICATE, 2, "renew")
    rig.open(connection="new")
    assert rig.authentication.again.sessions == 2


def test_the_longest_lifetime_that_can_be_set(rig: Rig) -> None:
    """The core counts the nanoseconds in 64 bits."""
    rig.reauth_ms = 2**63 - 1
    assert rig.open().expires_ns == 2**63 - 1
    rig.advance(2_000)
    rig.name()
    assert rig.token(b"alice").expires_ns == 2**63 - 1
