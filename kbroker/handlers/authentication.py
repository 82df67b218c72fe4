"""SASL: the frames of a connection before its client is known.

Place in the flow: on a listener that authenticates, the network core hands each frame up as a
request that `authenticates` (docs/channel.md), one after the other. Here it becomes an event of the
connection's exchange, and what `security/exchange.py` has for it is done: the answer is sent, or it
opens the channel as the user's, or it is held for `connection.failed.authentication.delay.ms` and
ends the connection.

A held answer waits in the timer, so it needs no thread; its connection is not read. Exchanges are
kept from one frame to the next, the oldest of too many are given up, and one that has taken longer
than it may is ended when its next frame comes (the network core ends it where none comes).

Any handler thread; the lock is a leaf and guards the exchanges and the counts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode
from kbroker.handlers.call import Call
from kbroker.handlers.framed_request import FramedRequest
from kbroker.handlers.reauthentication import Reauthentication, expires_ns
from kbroker.handlers.services import ColdRequest
from kbroker.limits import REFUSED_REQUEST_BYTES_MAX
from kbroker.log_lines import LogLines
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError
from kbroker.security.exchange import Do, Event, Exchange, State
from kbroker.security.mechanism import Login, MakeMechanism
from kbroker.security.session import Principal
from kbroker.security.turn import Turn, token_turn
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.registry import Api, Registry
    from kbroker.handlers.services import Services
    from kbroker.purgatory.timer import CallLater

logger: Final = logging.getLogger("kbroker.security")
lines: Final = LogLines(logger)

DELAY: Final = "connection.failed.authentication.delay.ms"
TIMEOUT: Final = "kbroker.authentication.timeout.ms"
UNAUTHENTICATED_MAX: Final = "kbroker.max.unauthenticated.connections"
RECEIVE_MAX: Final = "sasl.server.max.receive.size"
_DICE: Final = SystemRandom()


class Offered(NamedTuple):
    """A mechanism of a listener; a session of it lasts `reauth_ms` at most, 0: for ever."""

    make: MakeMechanism
    reauth_ms: int = 0


# By name; of one listener.
Mechanisms = Mapping[str, Offered]
Dispatch = Callable[[Any], None]


class AuthenticatingRequest(ColdRequest, Protocol):
    """A frame, as the compiled core hands it up; its body is all of it, and so is its answer."""

    @property
    def authenticates(self) -> bool: ...

    def open_channel(self, body: bytes, principal: Principal, expires_ns: int = 0) -> None: ...

    def refuse(self, body: bytes | None = None) -> None: ...


class OpenRequest(ColdRequest, Protocol):
    """A request of an open channel, with which its client authenticates again."""

    @property
    def session_ends(self) -> bool: ...

    def refuse(self, body: bytes | None = None) -> None: ...

    def renew_session(self, body: bytes, expires_ns: int) -> None: ...


@dataclass(slots=True)
class AuthenticationCounts:
    """Of one listener, since the start."""

    successful: int = 0
    failed: int = 0
    successful_again: int = 0
    failed_again: int = 0


class Authentication:
    """The exchanges of all listeners that authenticate."""

    def __init__(
        self,
        registry: Registry,
        services: Services,
        mechanisms: Callable[[str], Mechanisms],
        call_later: CallLater,
        dice: Random = _DICE,
    ) -> None:
        """`mechanisms`: those of a listener now, by its name."""
        self._dice = dice
        self._registry, self._services = registry, services
        self.mechanisms: Final = mechanisms
        self._call_later = call_later
        self._lock = threading.Lock()
        self._exchanges: dict[str, Exchange] = {}  # by connection, the oldest first
        self._counts: dict[str, AuthenticationCounts] = {}  # by listener
        self.again: Final = Reauthentication(self)

    def before(self, dispatch: Dispatch) -> Dispatch:
        """This dispatch, with the frames of authentications taken out."""

        def authenticate_or(request: Any) -> None:
            if request.authenticates:
                self.handle(request)
            elif request.api_key not in _OWN or not self.again.takes(request):
                dispatch(request)

        return authenticate_or

    def counts(self) -> dict[str, AuthenticationCounts]:
        """By listener; any thread."""
        with self._lock:
            return {name: replace(each) for name, each in self._counts.items()}

    @property
    def under_way(self) -> int:
        """How many exchanges wait for a frame."""
        with self._lock:
            return len(self._exchanges)

    def handle(self, frame: AuthenticatingRequest) -> None:
        connection, now_ms = frame.connection_id, self._services.clock.monotonic_ms()
        with self._lock:
            exchange = self._exchanges.pop(connection, None)
        if exchange is None:
            exchange = Exchange()
        config = self._services.config
        if len(frame.body) > config[RECEIVE_MAX]:
            self._end(frame, f"a frame has more than {RECEIVE_MAX}={config[RECEIVE_MAX]} bytes")
            return
        turn = self._turn(exchange, frame)
        match exchange.fire(turn.event):
            case Do.ANSWER:
                self._keep(connection, exchange)  # before another thread has its next frame
                frame.respond(turn.answer or b"")
            case Do.OPEN if turn.login is not None:
                self._count(frame.listener, successful=1)
                self._open(frame, exchange, turn, turn.login, now_ms)
            case Do.REFUSE:
                self.refuse(frame, turn.answer, turn.why, claimed=turn.claimed)
            case Do.END_LATE:
                self.refuse(frame, None, turn.why, claimed=turn.claimed)
            case _:
                self._end(frame, turn.why)

    def _open(
        self,
        frame: AuthenticatingRequest,
        exchange: Exchange,
        turn: Turn,
        login: Login,
        now_ms: int,
    ) -> None:
        principal = Principal("User", login.name, login.by_token)
        mechanism = exchange.mechanism_name
        lifetime_ms = self.lifetime_ms(frame.listener, mechanism, login)
        ends_ns = 0
        if lifetime_ms:
            self.again.opened(frame.connection_id, mechanism, now_ms, lifetime_ms)
            ends_ns = expires_ns(now_ms, lifetime_ms)
        frame.open_channel(turn.answer or b"", principal, ends_ns)

    def now_ms(self) -> int:
        """By the monotonic clock."""
        return self._services.clock.monotonic_ms()

    def lifetime_ms(self, listener: str, mechanism: str, login: Login) -> int:
        """Of a session that begins now; 0: as long as its connection. Below 0: it is over."""
        offered = self.mechanisms(listener).get(mechanism)
        bounds = [offered.reauth_ms] if offered is not None and offered.reauth_ms > 0 else []
        if login.expires_ms is not None:
            left_ms = login.expires_ms - self._services.clock.wall_ms()
            bounds.append(left_ms if left_ms > 0 else -1)
        return min(bounds, default=0)

    # --- what a frame is --------------------------------------------------------------------------

    def _turn(self, exchange: Exchange, frame: AuthenticatingRequest) -> Turn:
        if exchange.state is State.TOKENS:
            return _token(exchange, frame.body)
        try:
            request = FramedRequest(frame)
            api = self._registry.get(request.api_key)
            if api is None or api.between_brokers is not None:
                raise ProtocolError(f"API key {request.api_key} is not served here")
            if request.api_key == ApiKey.API_VERSIONS:
                return self._api_versions(exchange, api, request)
            if request.api_version not in api.versions:
                raise ProtocolError(f"{api.name} v{request.api_version} is not served")
            if exchange.state is not State.REQUESTS:
                if request.api_key == ApiKey.SASL_HANDSHAKE:
                    return self._handshake(exchange, request)
                return Turn(
                    Event.OTHER_REQUEST,
                    why=f"{api.name} came before SaslHandshake: does the client use SASL?",
                )
            if request.api_key == ApiKey.SASL_AUTHENTICATE:
                return self._token_of_request(exchange, request)
            event = (
                Event.HANDSHAKE_1 if request.api_key == ApiKey.SASL_HANDSHAKE
                else Event.OTHER_REQUEST
            )  # fmt: skip
            return _refused(event, api, request)
        except ProtocolError as error:
            return Turn(Event.NO_REQUEST, why=f"no request that is served: {error}")

    def _api_versions(self, exchange: Exchange, api: Api, request: FramedRequest) -> Turn:
        if exchange.state is State.REQUESTS:
            request.api_version = min(max(request.api_version, api.min_version), api.max_version)
            return _refused(Event.API_VERSIONS, api, request)
        if exchange.state is State.VERSIONED:
            return Turn(Event.API_VERSIONS, why="ApiVersions came twice")
        if request.api_version not in api.versions:
            request.respond(self._registry.unsupported_api_versions)
            return Turn(Event.API_VERSIONS_REFUSED, request.answer)
        if api.handle is not None:
            api.handle(self._services, request)
        refused = request.answer is None or _code_of(request.answer) != ErrorCode.NONE
        event = Event.API_VERSIONS_REFUSED if refused else Event.API_VERSIONS
        return Turn(event, request.answer)

    def _token_of_request(self, exchange: Exchange, request: FramedRequest) -> Turn:
        table, version = messages.sasl_authenticate, request.api_version
        turn = _token(exchange, table.Request.decode(request.body, version).auth_bytes)
        if turn.event is Event.TOKEN_DENIED:
            response = table.Response(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=turn.why
            )
        else:
            lifetime_ms = 0
            if turn.login is not None:
                name = exchange.mechanism_name
                lifetime_ms = self.lifetime_ms(request.listener, name, turn.login)
            response = table.Response(
                error_code=ErrorCode.NONE,
                error_message="",
                auth_bytes=turn.answer or b"",
                session_lifetime_ms=max(lifetime_ms, 0),
            )
        request.respond(response.encode(version))
        return turn._replace(answer=request.answer)

    def _handshake(self, exchange: Exchange, request: FramedRequest) -> Turn:
        table = messages.sasl_handshake
        version = request.api_version
        wanted = table.Request.decode(request.body, version).mechanism
        offered = self.mechanisms(request.listener)
        found = offered.get(wanted)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if found is None else ErrorCode.NONE
        response = table.Response(error_code=code, mechanisms=list(offered))
        request.respond(response.encode(version))
        if found is None:
            why = f"Unsupported SASL mechanism {wanted[:_SHOWN_CHARS]}"
            return Turn(Event.HANDSHAKE_REFUSED, request.answer, why)
        exchange.name_mechanism(wanted, found.make())
        return Turn(Event.HANDSHAKE_1 if version else Event.HANDSHAKE_0, request.answer)

    # --- what is done -----------------------------------------------------------------------------

    def _keep(self, connection: str, exchange: Exchange) -> None:
        # The core has closed a connection whose client takes longer; a frame that came in time may
        # wait for a handler as long again.
        config = self._services.config
        exchange.answered_ms = self.now_ms()
        oldest_ms = exchange.answered_ms - 2 * config[TIMEOUT]
        bound = config[UNAUTHENTICATED_MAX]
        with self._lock:
            self._exchanges[connection] = exchange
            while self._exchanges:  # an exchange that goes on is at the end
                first = next(iter(self._exchanges))
                if self._exchanges[first].answered_ms < oldest_ms:
                    del self._exchanges[first]
                elif len(self._exchanges) > bound:
                    # Not the oldest: where many begin, that is the one nearest to its end.
                    *others, _ = self._exchanges
                    del self._exchanges[self._dice.choice(others)]
                else:
                    break

    def refuse(
        self, frame: AuthenticatingRequest | OpenRequest, answer: bytes | None, why: str,
        *, again: bool = False, claimed: str = "",
    ) -> None:  # fmt: skip
        """Hold this answer, then send it and end the connection. `again`: of an open channel;
        `claimed`: the user that the client said it is."""
        if again:
            self._count(frame.listener, failed_again=1)
        else:
            self._count(frame.listener, failed=1)
        host, what = frame.peer_host, "re-authentication" if again else "authentication"
        cause = f"refused {host}"  # without `why`, which has what a client chooses
        lines.write(logging.INFO, cause, "Failed %s with %s (%s)", what, host, why)
        self._record(frame, why, claimed)
        delay_ms = self._services.config[DELAY]
        if delay_ms <= 0:
            frame.refuse(answer)
        else:
            # A timer that has died raises: the frame is dropped then, which ends the connection.
            self._call_later(delay_ms, lambda: frame.refuse(answer))

    def _end(self, frame: AuthenticatingRequest, why: str) -> None:
        self._count(frame.listener, failed=1)
        host = frame.peer_host
        lines.write(
            logging.WARNING, host, "closing %s, whose client has not authenticated: %s",
            frame.connection_id, why,
        )  # fmt: skip
        self._record(frame, why)
        frame.refuse()

    def _record(
        self, frame: AuthenticatingRequest | OpenRequest, why: str, claimed: str = ""
    ) -> None:
        """Of a client that is not let in."""
        audit = self._services.audit
        if audit is None:
            return
        from kbroker.security.audit import Kind, refused_login  # few brokers have an audit log

        audit.note(Kind.LOGIN, refused_login(claimed, frame.peer_host, frame.listener, why))

    def count_again(self, listener: str) -> None:
        """A client of this listener has authenticated again."""
        self._count(listener, successful_again=1)

    def _count(
        self, listener: str, *, successful: int = 0, failed: int = 0, successful_again: int = 0,
        failed_again: int = 0,
    ) -> None:  # fmt: skip
        with self._lock:
            counts = self._counts.setdefault(listener, AuthenticationCounts())
            counts.successful += successful
            counts.failed += failed
            counts.successful_again += successful_again
            counts.failed_again += failed_again


_SHOWN_CHARS: Final = 64
_OWN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


def _token(exchange: Exchange, token: bytes) -> Turn:
    if exchange.mechanism is None:  # of a state that has one
        raise ProtocolError("a token without a mechanism")
    return token_turn(exchange.mechanism_name, exchange.mechanism, token)


def _refused(event: Event, api: Api, request: FramedRequest) -> Turn:
    """ILLEGAL_SASL_STATE in the shape of the API. ProtocolError: it is no request of it."""
    if len(request.body) > REFUSED_REQUEST_BYTES_MAX:
        raise ProtocolError(f"{api.name} of {len(request.body)} bytes")
    why = f"Unexpected Kafka request of type {api.key.name} during SASL authentication."
    code = ErrorCode.ILLEGAL_SASL_STATE
    if api.failure is not None:
        request.respond(api.failure(request, code, why))
    else:
        call: Call[Any] = Call(request, api.table, api.shape)
        call.fail(code, why)
    return Turn(event, request.answer, why)


def _code_of(answer: bytes) -> int:
    """Of an ApiVersions response, after its correlation id."""
    return int.from_bytes(answer[4:6], "big", signed=True)
