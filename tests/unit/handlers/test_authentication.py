"""SASL before a channel is open: every state x every API x every version, and what clients see."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode
from kbroker.handlers.authentication import Authentication, Offered
from kbroker.handlers.registry import REGISTRY
from kbroker.protocol import messages
from kbroker.protocol.versions import response_header_version
from kbroker.protocol.wire import encode_string
from kbroker.purgatory.timer import Timer
from kbroker.security.audit import Kind
from kbroker.security.mechanism import AuthenticationError, CredentialsError, Login
from kbroker.security.session import ANONYMOUS, Principal
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker

CORRELATION_ID = 77
DENIED = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
)


class Password:
    """A mechanism of two tokens: "hello" is answered, "right" lets in; the others fail."""

    def __init__(self) -> None:
        self.login: Login | None = None
        self.claimed = "anna"

    def evaluate(self, token: bytes) -> bytes:
        if token == b"hello":
            return b"welcome"
        if token == b"":
            return b""
        if token == b"right":
            self.login = Login("alice", by_token=True)
            return b"bye"
        if token == b"text":
            raise AuthenticationError("Authentication failed: Invalid username or password")
        raise CredentialsError("a reason for the log alone")


class Frame:
    """A frame as the core hands it up."""

    authenticates = True
    client_id = None
    listener = "SECURE"
    local_host = peer_host = "127.0.0.1"
    local_port, peer_port = 9092, 50000
    principal = ANONYMOUS
    api_key = api_version = -1
    correlation_id = -1

    def __init__(self, body: bytes, connection: str = "c") -> None:
        self.body, self.connection_id = body, connection
        self.answers: list[tuple[str, bytes | None]] = []
        self.opened_as: Principal | None = None

    def _answer(self, how: str, body: bytes | None) -> None:
        assert not self.answers
        self.answers.append((how, body))

    def respond(self, body: bytes) -> None:
        self._answer("respond", body)

    def open_channel(self, body: bytes, principal: Principal, expires_ns: int = 0) -> None:
        self.opened_as, self.expires_ns = principal, expires_ns
        self._answer("open", body)

    def refuse(self, body: bytes | None = None) -> None:
        self._answer("refuse", body)

    def close_connection(self, reason: str) -> None:
        raise AssertionError(reason)


class Rig:
    """An Authentication over the real registry; `advance` turns its timer."""

    def __init__(self, overrides: Mapping[str, str] = {}) -> None:  # it is read only
        settings = {"kbroker.max.unauthenticated.connections": "5", **overrides}
        self.broker = FakeBroker(overrides=[f"{key}={value}" for key, value in settings.items()])
        self.clock: ManualClock = self.broker.clock
        self.timer = Timer(self.clock)
        self.authentication = Authentication(
            REGISTRY,
            self.broker.services,
            lambda listener: {"PASSWORD": Offered(Password), "OTHER": Offered(Password)},
            self.timer.call_later,
            Random(1),
        )

    def send(self, body: bytes, connection: str = "c") -> Frame:
        frame = Frame(body, connection)
        self.authentication.handle(frame)
        return frame

    def answer(self, body: bytes, connection: str = "c") -> bytes:
        (only,) = self.send(body, connection).answers
        assert only[0] == "respond" and only[1] is not None
        return only[1]

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def framed(key: int, version: int, body: bytes, *, flexible: bool | None = None) -> bytes:
    if flexible is None:
        flexible = response_header_version(key, version) == 1 or (
            key == ApiKey.API_VERSIONS and version >= 3
        )
    header = struct.pack(">hhi", key, version, CORRELATION_ID)
    return header + encode_string("me", flexible=False) + b"\0" * flexible + body


def handshake(mechanism: str = "PASSWORD", version: int = 1) -> bytes:
    request = messages.sasl_handshake.Request(mechanism=mechanism)
    return framed(ApiKey.SASL_HANDSHAKE, version, request.encode(version))


def authenticate(token: bytes, version: int = 2) -> bytes:
    request = messages.sasl_authenticate.Request(auth_bytes=token)
    return framed(ApiKey.SASL_AUTHENTICATE, version, request.encode(version))


def api_versions(version: int = 0) -> bytes:
    body = b""
    if version >= 3:
        body = encode_string("me", flexible=True) + encode_string("1.0", flexible=True) + b"\0"
    return framed(ApiKey.API_VERSIONS, version, body)


def response(table: Any, version: int, answer: bytes | None) -> Any:
    assert answer is not None
    assert struct.unpack_from(">i", answer) == (CORRELATION_ID,)
    header = 4 + response_header_version(table.Response.api, version)
    return table.Response.decode(answer[header:], version)


# --- a login --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("asks", [None, 0, 1, 2, 3, 4])
def test_a_login(rig: Rig, version: int, asks: int | None) -> None:
    if asks is not None:
        listed = rig.answer(api_versions(asks))
        rest = api_versions(asks)[12 + (asks >= 3) :]
        plain = rig.broker.send(ApiKey.API_VERSIONS, asks, rest).answer
        assert plain is not None and listed == struct.pack(">i", CORRELATION_ID) + plain
    named = response(messages.sasl_handshake, 1, rig.answer(handshake()))
    assert (named.error_code, named.mechanisms) == (0, ["PASSWORD", "OTHER"])
    for token, said in ((b"hello", b"welcome"), (b"", b"")):
        answer = response(
            messages.sasl_authenticate, version, rig.answer(authenticate(token, version))
        )
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", said)
        assert answer.session_lifetime_ms == 0
    frame = rig.send(authenticate(b"right", version))
    ((how, body),) = frame.answers
    assert how == "open" and frame.opened_as == Principal("User", "alice", by_token=True)
    assert response(messages.sasl_authenticate, version, body).auth_bytes == b"bye"
    counts = rig.authentication.counts()["SECURE"]
    assert (counts.successful, counts.failed, rig.authentication.under_way) == (1, 0, 0)


def test_a_login_without_headers(rig: Rig) -> None:
    named = response(messages.sasl_handshake, 0, rig.answer(handshake(version=0)))
    assert named.error_code == 0
    assert rig.answer(b"hello") == b"welcome"
    assert rig.answer(b"") == b""
    frame = rig.send(b"right")
    assert frame.answers == [("open", b"bye")]
    assert frame.opened_as is not None and frame.opened_as.name == "alice"


def test_versions_of_tokens_may_be_mixed(rig: Rig) -> None:
    rig.answer(handshake())
    for version in (2, 0, 1):
        answer = rig.answer(authenticate(b"hello", version))
        assert response(messages.sasl_authenticate, version, answer).auth_bytes == b"welcome"


def test_connections_do_not_mix(rig: Rig) -> None:
    rig.answer(handshake(version=0), "one")
    rig.answer(handshake(), "two")
    assert rig.answer(b"hello", "one") == b"welcome"
    assert rig.send(b"hello", "two").answers == [("refuse", None)]
    assert rig.send(b"right", "one").answers == [("open", b"bye")]


# --- a failure is held ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"text", "Authentication failed: Invalid username or password"),
        (b"wrong", f"{DENIED} PASSWORD"),
    ],
)
def test_a_failure_is_answered_after_the_delay(
    rig: Rig, token: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kbroker.security")
    rig.answer(handshake())
    frame = rig.send(authenticate(token))
    rig.advance(99)
    assert frame.answers == []
    rig.advance(2)
    ((how, body),) = frame.answers
    answer = response(messages.sasl_authenticate, 2, body)
    assert how == "refuse"
    assert (answer.error_code, answer.error_message) == (58, text)
    assert f"Failed authentication with 127.0.0.1 ({text})" in caplog.text
    assert "a reason for the log alone" not in caplog.text
    assert rig.authentication.counts()["SECURE"].failed == 1


def test_without_a_delay_a_failure_is_answered_at_once() -> None:
    rig = Rig({"connection.failed.authentication.delay.ms": "0"})
    rig.answer(handshake())
    assert rig.send(authenticate(b"wrong")).answers[0][0] == "refuse"


@pytest.mark.parametrize("token", [b"text", b"wrong"])
def test_a_failure_without_headers_has_no_answer(rig: Rig, token: bytes) -> None:
    rig.answer(handshake(version=0))
    frame = rig.send(token)
    assert frame.answers == []
    rig.advance(101)
    assert frame.answers == [("refuse", None)]


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("name", ["PLAIN", "password", "", "x" * 32_000])
def test_an_unknown_mechanism(rig: Rig, version: int, name: str) -> None:
    frame = rig.send(handshake(name, version))
    assert frame.answers == []
    rig.advance(101)
    ((how, body),) = frame.answers
    answer = response(messages.sasl_handshake, version, body)
    assert how == "refuse"
    assert (answer.error_code, answer.mechanisms) == (33, ["PASSWORD", "OTHER"])


def test_lines_that_a_client_provokes_are_few(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker.security")
    for at in range(50):
        rig.answer(handshake(), f"c{at}")
        rig.send(authenticate(b"wrong"), f"c{at}")
        rig.send(b"\0", f"d{at}")
        rig.send(handshake(f"MECHANISM-{at}"), f"e{at}")
    assert len(caplog.records) <= 2


# --- every state, API and version -----------------------------------------------------------------


def to_initial(rig: Rig) -> None:
    pass


def to_versioned(rig: Rig) -> None:
    rig.answer(api_versions())


def to_requests(rig: Rig) -> None:
    rig.answer(handshake())


def to_tokens(rig: Rig) -> None:
    rig.answer(handshake(version=0))


OTHERS = [
    (api.key, version)
    for api in REGISTRY.apis
    for version in (*range(api.min_version, api.max_version + 1), api.max_version + 1)
    if api.key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS)
]


@pytest.mark.parametrize("reach", [to_initial, to_versioned])
def test_no_other_request_comes_first(reach: Callable[[Rig], None]) -> None:
    for key, version in [*OTHERS, (36, 0), (36, 2), (36, 3), (17, 2), (999, 0), (-1, -1)]:
        rig = Rig()
        reach(rig)
        assert rig.send(framed(key, version, b"\xff")).answers == [("refuse", None)], key


def encoded_request(key: ApiKey, version: int) -> bytes:
    """The smallest one."""
    request = getattr(messages, key.name.lower()).Request
    return bytes(request().encode(version))


def test_another_request_instead_of_a_token_is_answered_in_its_shape() -> None:
    answered = 0
    for key, version in OTHERS:
        api = REGISTRY.get(key)
        assert api is not None
        rig = Rig()
        to_requests(rig)
        try:
            body = encoded_request(key, version)
        except Exception:  # a field without a default, or a version that there is not
            body = b""
        frame = rig.send(framed(key, version, body))
        if api.between_brokers is not None or version not in api.versions:
            assert frame.answers == [("refuse", None)], (key, version)
            continue
        rig.advance(101)
        ((how, answer),) = frame.answers
        assert how == "refuse"
        if answer is None:
            continue
        answered += 1
        decoded = response(api.table, version, answer)
        if "error_code" in type(decoded).fields and "error_code" in dir(decoded):
            field = type(decoded).fields["error_code"]
            if field.since <= version <= field.until:
                assert decoded.error_code == ErrorCode.ILLEGAL_SASL_STATE, (key, version)
    assert answered > 50


@pytest.mark.parametrize("version", range(6))
def test_api_versions_instead_of_a_token(rig: Rig, version: int) -> None:
    to_requests(rig)
    frame = rig.send(api_versions(version))
    assert frame.answers == []
    rig.advance(101)
    ((how, body),) = frame.answers
    assert how == "refuse" and body is not None
    assert struct.unpack_from(">ih", body) == (CORRELATION_ID, ErrorCode.ILLEGAL_SASL_STATE)


@pytest.mark.parametrize("version", range(2))
def test_a_second_handshake_instead_of_a_token(rig: Rig, version: int) -> None:
    to_requests(rig)
    frame = rig.send(handshake(version=version))
    rig.advance(101)
    ((how, body),) = frame.answers
    assert how == "refuse"
    assert response(messages.sasl_handshake, version, body).error_code == 34


@pytest.mark.parametrize(
    "body",
    [
        authenticate(b"right", 2).replace(struct.pack(">hh", 36, 2), struct.pack(">hh", 36, 3), 1),
        b"",
        b"\0",
        b"\xff" * 100,
        framed(36, 2, b"\xff" * 100),
        framed(36, 0, b"\x7f\xff\xff\xff"),
        framed(3, 9, b"\xff" * 100),
        framed(3, 9, b"\xff" * 20_000),
    ],
)
def test_bytes_that_are_no_token(rig: Rig, body: bytes) -> None:
    to_requests(rig)
    assert rig.send(body).answers == [("refuse", None)]


@pytest.mark.parametrize("reach", [to_initial, to_versioned, to_requests])
def test_an_api_versions_that_comes_too_often(reach: Callable[[Rig], None]) -> None:
    rig = Rig()
    reach(rig)
    first = rig.send(api_versions())
    second = rig.send(api_versions()) if reach is to_initial else first
    rig.advance(101)
    assert second.answers[0][0] == "refuse"


def test_an_api_versions_with_an_error_may_come_again(rig: Rig) -> None:
    unknown = rig.answer(api_versions(17))
    assert struct.unpack_from(">ih", unknown) == (CORRELATION_ID, ErrorCode.UNSUPPORTED_VERSION)
    nameless = framed(ApiKey.API_VERSIONS, 3, b"\x01\x01\0")
    assert struct.unpack_from(">ih", rig.answer(nameless)) == (CORRELATION_ID, 42)
    assert struct.unpack_from(">ih", rig.answer(api_versions(4))) == (CORRELATION_ID, 0)
    assert rig.send(api_versions(17)).answers == [("refuse", None)]


# --- bounds ---------------------------------------------------------------------------------------


def test_a_frame_that_is_too_large() -> None:
    rig = Rig({"sasl.server.max.receive.size": "100"})
    rig.answer(handshake(version=0))
    assert rig.send(b"x" * 101).answers == [("refuse", None)]


def test_time_with_a_handler_is_not_the_client_s(rig: Rig) -> None:
    """The core ends a connection whose client is late; what comes here may have waited."""
    rig.answer(handshake())
    for other in ("b", "d"):
        rig.advance(29_000)
        rig.answer(handshake(), other)
    assert rig.send(authenticate(b"right")).answers[0][0] == "open"


def test_any_of_too_many_exchanges_is_given_up(rig: Rig) -> None:
    """Not always the oldest: it is the nearest to its end, so where many begin none would end."""
    opened: list[bool] = []
    for slow in range(20):
        rig.answer(handshake(version=0), f"slow {slow}")
        for other in range(5):
            rig.answer(handshake(version=0), f"{slow} {other}")
        assert rig.authentication.under_way == 5
        answers = rig.send(b"right", f"slow {slow}").answers
        opened.append(answers == [("open", b"bye")])
        assert opened[-1] or answers == [("refuse", None)]  # as a first frame
    assert 3 <= sum(opened) <= 17


def test_exchanges_whose_clients_are_gone_are_forgotten(rig: Rig) -> None:
    for at in range(3):
        rig.answer(handshake(), f"c{at}")
    rig.advance(60_001)
    rig.answer(handshake(), "new")
    assert rig.authentication.under_way == 1


def test_requests_of_open_channels_go_on(rig: Rig) -> None:
    seen: list[Any] = []
    dispatch = rig.authentication.before(seen.append)
    frame = Frame(handshake())
    dispatch(frame)
    assert frame.answers and seen == []
    frame.authenticates = False
    dispatch(frame)
    assert seen == [frame]


# --- the audit log --------------------------------------------------------------------------------


def test_clients_that_are_not_let_in_are_recorded(rig: Rig) -> None:
    records: list[Any] = []

    class Audit:
        def note(self, kind: Kind, make: Any, size_bytes: int = 0) -> bool:
            records.append((kind, make()))
            return True

    audit: Any = Audit()
    rig.broker.services.audit = audit
    rig.send(handshake())
    rig.send(authenticate(b"wrong"))
    rig.send(b"no request", "d")
    (first, record), (second, other) = records
    assert first is second is Kind.LOGIN
    assert record == {
        "event": "Authentication",
        "claimed_user": "anna",
        "host": "127.0.0.1",
        "listener": "SECURE",
        "outcome": "refused",
        "reason": f"{DENIED} PASSWORD",
    }
    assert other["claimed_user"] == "" and "no request" in other["reason"]
