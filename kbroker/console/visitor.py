"""The client of the one who looks: what a page shows is what its visitor may see.

Each thread of the console has a client for each visitor, made with the visitor's first page there.
It is a client like any other, over a listener of this broker: where brokers authenticate, the
visitor's name and password are those of the login, so rights, quotas and the audit log are those
of that user. Where they do not, the client has no name, as every other client. It never has the
name of a broker. Another broker that refuses the login counts as one that is away: it may not know
the user yet. The one that took it ends the session; it is asked again after CONSOLE_LOGIN_AGAIN_MS,
since a broker does not end the connections of a user that is deleted.

`Clients` belongs to its thread; `log_in` on one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.console.sessions import Session
from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import (
    CONSOLE_CLIENT_TIMEOUT_MS,
    CONSOLE_CREDENTIAL_CHARS_MAX,
    CONSOLE_LOGIN_AGAIN_MS,
)
from kbroker.peer.client import Client
from kbroker.security.client_login import ClientLogin

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.security.client_tls import ClientTls

CLIENT_ID: Final = "kbroker-console"
# Of those that a name and a password are enough for; none of the first sends the password.
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_WAY_MS: Final = 60_000
# Topics whose leaders a client remembers between two pages: 400 bytes each, of each visitor.
LEADERS_KEPT_MAX: Final = 1_000


class Way(NamedTuple):
    """How a visitor's client comes in. `mechanisms` empty: without a login."""

    address: str
    mechanisms: tuple[str, ...]
    tls: ClientTls | None


class Entry(Protocol):
    """Of this broker; `server.console_port` makes one."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    def way(self, *, is_local: bool) -> Way:
        """On a thread that may read files. UserError: there is none."""
        ...


class LoginNeeded(Exception):
    """The visitor has to log in first."""


class _Visiting:
    """A visitor's client, and when it last began without a connection."""

    __slots__ = ("began_ms", "client")

    def __init__(self, client: Client, now_ms: int) -> None:
        self.client: Final = client
        self.began_ms = now_ms


class Clients:
    """Of one thread."""

    def __init__(self, entry: Entry, clock: Clock) -> None:
        self._entry = entry
        self._clock = clock
        self._clients: dict[Session, _Visiting] = {}
        # Visitors without a name, those of this machine apart; None: they have to log in.
        self._unnamed: dict[bool, Session | None] = {}
        self._config: BrokerConfig | None = None
        self._known_until_ms = 0

    def of(self, session: Session | None, *, is_local: bool) -> Client:
        """LoginNeeded; UserError: there is no way in."""
        if session is None:
            session = self._without_name(is_local)
        visiting = self._clients.get(session)
        if visiting is None:
            client = self._client(session.address, session.login)
            visiting = self._clients[session] = _Visiting(client, self._clock.monotonic_ms())
        self._have_log_in_again(session, visiting)
        return visiting.client

    def way(self, *, is_local: bool) -> Way:
        return self._entry.way(is_local=is_local)

    def log_in(self, way: Way, name: str, password: str) -> ClientLogin:
        """What the broker lets in. KafkaError: nothing."""
        refused = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no such user or password")
        if not _may_be(name) or not _may_be(password):
            raise refused
        for mechanism in way.mechanisms:
            login = ClientLogin(mechanism, name, password, tls=way.tls)
            client = self._client(way.address, login)
            try:
                client.metadata([])
            except KafkaError as error:
                if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                    raise
                refused = error
            else:
                return login
            finally:
                client.close()
        raise refused

    def sweep(self) -> None:
        """After each page, and each piece of a stream: closes the clients of sessions that have
        ended, and bounds the memory of the others."""
        for session, visiting in [*self._clients.items()]:
            if session.ended:
                self._clients.pop(session).client.close()
                continue
            visiting.client.cluster.bound_leaders(LEADERS_KEPT_MAX)
            self._have_log_in_again(session, visiting)

    def close(self) -> None:
        for visiting in self._clients.values():
            visiting.client.close()
        self._clients.clear()

    def _have_log_in_again(self, session: Session, visiting: _Visiting) -> None:
        """From time to time, with its next request. No response is due to it between two pages."""
        now_ms = self._clock.monotonic_ms()
        if session.login is None or now_ms - visiting.began_ms < CONSOLE_LOGIN_AGAIN_MS:
            return
        visiting.client.cluster.close()
        visiting.began_ms = now_ms

    def _without_name(self, is_local: bool) -> Session:
        self._look_again()
        if is_local not in self._unnamed:
            way = self.way(is_local=is_local)
            login = None if way.tls is None else ClientLogin(tls=way.tls)
            unnamed = None if way.mechanisms else Session("", login, way.address, 0)
            self._unnamed[is_local] = unnamed
        known = self._unnamed[is_local]
        if known is None:
            raise LoginNeeded
        return known

    def _look_again(self) -> None:
        """With another configuration, and after a while: the files of TLS may be others."""
        config, now_ms = self._entry.config, self._clock.monotonic_ms()
        if config is self._config and now_ms < self._known_until_ms:
            return
        for session in self._unnamed.values():
            if session is not None:
                session.ended = True
        self._unnamed.clear()
        self._config = config
        self._known_until_ms = now_ms + _WAY_MS

    def _client(self, address: str, login: ClientLogin | None) -> Client:
        return Client(
            address, client_id=CLIENT_ID, timeout_ms=CONSOLE_CLIENT_TIMEOUT_MS, clock=self._clock,
            login=login, home=self._entry.node_id,
        )  # fmt: skip


def _may_be(text: str) -> bool:
    """A name or a password."""
    return 0 < len(text) <= CONSOLE_CREDENTIAL_CHARS_MAX and "\0" not in text
