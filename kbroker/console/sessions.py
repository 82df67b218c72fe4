"""Visitors that have logged in, and how often a network may try.

A session is found by the hash of its id, so what is kept here opens none. All of it is bounded:
where there are too many sessions, of a user or of all, the one that was idle for longest ends; of
logins, those of a network, those of a site and those of all have a bound within a minute. The bound
of all is that of strangers: a network from which a visitor has logged in, and this machine, are not
kept out by the tries of others.

On the control loop alone.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from kbroker.console.network import site_of
from kbroker.limits import (
    CONSOLE_LOGIN_PERIOD_MS,
    CONSOLE_LOGINS_MAX,
    CONSOLE_LOGINS_OF_ALL_MAX,
    CONSOLE_LOGINS_OF_SITE_MAX,
    CONSOLE_NETWORKS_MAX,
    CONSOLE_SESSION_IDLE_MS,
    CONSOLE_SESSIONS_MAX,
    CONSOLE_SESSIONS_PER_USER_MAX,
)

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.security.client_login import ClientLogin

_ID_BYTES: Final = 32


class Session:
    """`login` None: a visitor without a name. `ended` may be read by any thread."""

    __slots__ = ("address", "ended", "login", "name", "used_ms")

    def __init__(self, name: str, login: ClientLogin | None, address: str, now_ms: int) -> None:
        """`address`: where the visitor's client finds this broker."""
        self.name: Final = name
        self.login: Final = login
        self.address: Final = address
        self.used_ms = now_ms
        self.ended = False


class Sessions:
    """Those that last; the one that was idle for longest is the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self.ended = 0  # how many have ended, by whatever

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, name: str, login: ClientLogin, address: str) -> str:
        """Its id, which cannot be guessed."""
        of_user = [key for key, each in self._sessions.items() if each.name == name]
        if len(of_user) >= CONSOLE_SESSIONS_PER_USER_MAX:
            self._end(of_user[0])
        elif len(self._sessions) >= CONSOLE_SESSIONS_MAX:
            self._end(next(iter(self._sessions)))
        session_id = secrets.token_urlsafe(_ID_BYTES)
        session = Session(name, login, address, self._clock.monotonic_ms())
        self._sessions[_key_of(session_id)] = session
        return session_id

    def find(self, session_id: str) -> Session | None:
        self.end_idle()
        key = _key_of(session_id)
        session = self._sessions.get(key)
        if session is not None:
            session.used_ms = self._clock.monotonic_ms()
            self._sessions.move_to_end(key)
        return session

    def end(self, session: Session) -> None:
        for key, each in self._sessions.items():
            if each is session:
                self._end(key)
                return

    def end_idle(self) -> None:
        """Those whose time is over."""
        now_ms = self._clock.monotonic_ms()
        while self._sessions:
            key, oldest = next(iter(self._sessions.items()))
            if now_ms - oldest.used_ms < CONSOLE_SESSION_IDLE_MS:
                break
            self._end(key)

    def _end(self, key: bytes) -> None:
        self._sessions.pop(key).ended = True
        self.ended += 1


class Tries:
    """Logins of each network within a minute, of each site, and of all strangers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._networks: OrderedDict[str, deque[int]] = OrderedDict()
        self._sites: OrderedDict[str, deque[int]] = OrderedDict()
        self._strangers: deque[int] = deque(maxlen=CONSOLE_LOGINS_OF_ALL_MAX)
        self._welcome: OrderedDict[str, None] = OrderedDict()

    def wait_s(self, network: str, *, is_local: bool = False) -> int:
        """0: it may try, and this was a try; else in so many seconds."""
        now_ms = self._clock.monotonic_ms()
        site = site_of(network)
        bounds = [
            self._networks.get(network) or deque(maxlen=CONSOLE_LOGINS_MAX),
            self._sites.get(site) or deque(maxlen=CONSOLE_LOGINS_OF_SITE_MAX),
        ]
        if not (is_local or network in self._welcome):
            bounds.append(self._strangers)
        left_ms = max(_left_ms(each, now_ms) for each in bounds)
        if left_ms > 0:
            return -(-left_ms // 1_000)
        for each in bounds:
            each.append(now_ms)
        _keep(self._networks, network, bounds[0])
        _keep(self._sites, site, bounds[1])
        return 0

    def succeeded(self, network: str) -> None:
        """A visitor has logged in from there."""
        self._welcome[network] = None
        self._welcome.move_to_end(network)
        if len(self._welcome) > CONSOLE_NETWORKS_MAX:
            self._welcome.popitem(last=False)


def _keep(known: OrderedDict[str, deque[int]], name: str, tries: deque[int]) -> None:
    known[name] = tries
    known.move_to_end(name)
    # Of more than these the first one's tries are older than a minute.
    if len(known) > CONSOLE_LOGINS_OF_ALL_MAX + CONSOLE_NETWORKS_MAX:
        known.popitem(last=False)


def _left_ms(tries: deque[int], now_ms: int) -> int:
    """Until one more is taken."""
    if len(tries) < (tries.maxlen or 0):
        return 0
    return CONSOLE_LOGIN_PERIOD_MS - (now_ms - tries[0])


def _key_of(session_id: str) -> bytes:
    return sha256(session_id.encode(errors="replace")).digest()
