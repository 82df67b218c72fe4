"""Clients that authenticate again on an open channel, before their session is over (KIP-368).

Place in the flow: where a session has a lifetime (`connections.max.reauth.ms`, or a credential that
expires), its client sends SaslHandshake once more. That request, and the SaslAuthenticate requests
after it, are ordinary requests of an open channel: cold ones, so that the channel takes none after
them before they are answered, and their answers come after those of all earlier requests. The
network core ends a connection whose session is over when its next request comes.

A client must come back with the same mechanism and as the same principal, and not with a delegation
token where it came without one. A start that is earlier than a second after the last one, or in a
session without a lifetime, is no start: it gets the ILLEGAL_SASL_STATE of any other open channel
(`sasl_state.py`).

Any handler thread; the lock is a leaf. A session is forgotten some time after it is over, since a
closed connection is not reported here; of too many the oldest is forgotten. A client whose session
was forgotten did nothing wrong: its connection is closed without an answer, after which it connects
again. An error would end it, and any client's logins could bring that about.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from kbroker.clock import NS_PER_MS
from kbroker.errors import ErrorCode
from kbroker.limits import SASL_SESSIONS_MAX
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError
from kbroker.security.exchange import Event
from kbroker.security.turn import denied, token_turn
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.authentication import Authentication, Mechanisms, OpenRequest
    from kbroker.security.mechanism import Login, Mechanism
    from kbroker.security.session import Principal

_PAUSE_MS: Final = 1_000
# A client may be late: its session is known for so long after its end.
_KNOWN_AFTER_MS: Final = 600_000
_LAST_NS: Final = 2**63 - 1
_VERSION: Final = 1  # of SaslHandshake: tokens have headers


def expires_ns(now_ms: int, lifetime_ms: int) -> int:
    """When a session that begins now ends, as the core has it: 0 would be never, and a session
    of 300 years ends as late as the clock does."""
    return min(max((now_ms + lifetime_ms) * NS_PER_MS, 1), _LAST_NS)


class _Session:
    """Of one open channel whose session has a lifetime."""

    __slots__ = ("ends_ms", "expected", "mechanism", "named", "started_ms")

    def __init__(self, mechanism: str, started_ms: int, ends_ms: int) -> None:
        self.mechanism = mechanism
        self.started_ms = started_ms
        self.ends_ms = ends_ms
        self.named = ""  # the mechanism of an authentication that is under way
        self.expected: Mechanism | None = None  # what takes its next token


class Reauthentication:
    """See the head of this file."""

    def __init__(self, authentication: Authentication) -> None:
        self._authentication = authentication
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}  # by connection; the oldest authentication first

    def opened(self, connection: str, mechanism: str, now_ms: int, lifetime_ms: int) -> None:
        """A channel is about to open for so long."""
        oldest_ms = now_ms - _KNOWN_AFTER_MS
        session = _Session(mechanism, now_ms, now_ms + lifetime_ms)
        with self._lock:
            self._sessions.pop(connection, None)
            self._sessions[connection] = session
            while True:
                first = next(iter(self._sessions))
                known = len(self._sessions)
                if self._sessions[first].ends_ms >= oldest_ms and known <= SASL_SESSIONS_MAX:
                    break
                del self._sessions[first]

    @property
    def sessions(self) -> int:
        """How many have a lifetime."""
        with self._lock:
            return len(self._sessions)

    def takes(self, request: OpenRequest) -> bool:
        """Whether this request of an open channel was one of an authentication, and is answered."""
        with self._lock:
            session = self._sessions.get(request.connection_id)
        if session is None:
            if not request.session_ends:
                return False
            request.close_connection("its session is not known any more")
            return True
        try:
            if request.api_key == ApiKey.SASL_HANDSHAKE:
                return self._start(session, request)
            return self._token(session, request)
        except ProtocolError:
            return False  # which closes the connection

    def _start(self, session: _Session, request: OpenRequest) -> bool:
        now_ms = self._authentication.now_ms()
        if request.api_version != _VERSION or now_ms - session.started_ms < _PAUSE_MS:
            return False
        table = messages.sasl_handshake
        wanted = table.Request.decode(request.body, _VERSION).mechanism
        offered: Mechanisms = self._authentication.mechanisms(request.listener)
        found = offered.get(wanted)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if found is None else ErrorCode.NONE
        body = table.Response(error_code=code, mechanisms=list(offered)).encode(_VERSION)
        if found is None:
            why = f"Unsupported SASL mechanism {wanted[:64]}"
            self._authentication.refuse(request, body, why, again=True)
            return True
        session.started_ms, session.named, session.expected = now_ms, wanted, found.make()
        request.respond(body)
        return True

    def _token(self, session: _Session, request: OpenRequest) -> bool:
        mechanism, version = session.expected, request.api_version
        if mechanism is None:
            return False
        table = messages.sasl_authenticate
        token = table.Request.decode(request.body, version).auth_bytes
        if session.named != session.mechanism:
            return self._denied(session, request, denied(session.named), table, version)
        event, answer, why, login, claimed = token_turn(session.named, mechanism, token)
        if event is Event.TOKEN_DENIED:
            return self._denied(session, request, why, table, version, claimed)
        if login is None:
            response = table.Response(
                error_code=ErrorCode.NONE, error_message="", auth_bytes=answer or b""
            )
            request.respond(response.encode(version))
            return True
        before = request.principal
        if (before.type, before.name) != ("User", login.name):
            why = _other_principal(before, login)
            return self._denied(session, request, why, table, version, login.name)
        if login.by_token and not before.by_token:
            # The channel would stay one that may create tokens, also when the password has gone.
            why = _BY_TOKEN
            return self._denied(session, request, why, table, version, login.name)
        self._renew(session, request, answer or b"", login)
        return True

    def _renew(self, session: _Session, request: OpenRequest, answer: bytes, login: Login) -> None:
        authentication, version = self._authentication, request.api_version
        now_ms = authentication.now_ms()
        lifetime_ms = authentication.lifetime_ms(request.listener, session.named, login)
        session.expected = None
        response = messages.sasl_authenticate.Response(
            error_code=ErrorCode.NONE,
            error_message="",
            auth_bytes=answer,
            session_lifetime_ms=max(lifetime_ms, 0),
        )
        authentication.count_again(request.listener)
        if lifetime_ms == 0:  # it was taken away meanwhile
            with self._lock:
                self._sessions.pop(request.connection_id, None)
            request.renew_session(response.encode(version), 0)
            return
        session.ends_ms = now_ms + lifetime_ms
        with self._lock:  # last: the first are those that are over first
            self._sessions.pop(request.connection_id, None)
            self._sessions[request.connection_id] = session
        request.renew_session(response.encode(version), expires_ns(now_ms, lifetime_ms))

    def _denied(
        self, session: _Session, request: OpenRequest, why: str, table: Any, version: int,
        claimed: str = "",
    ) -> bool:  # fmt: skip
        session.expected = None
        response = table.Response(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=why
        )
        body = response.encode(version)
        self._authentication.refuse(request, body, why, again=True, claimed=claimed)
        return True


_BY_TOKEN: Final = (
    "Cannot change to a delegation token during re-authentication of a session that began without"
)


def _other_principal(before: Principal, login: Login) -> str:
    return (
        "Cannot change principals during re-authentication from"
        f" {before.type}.{before.name}: User.{login.name}"
    )
