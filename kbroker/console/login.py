"""Logging in and out: the form, the cookie, and the address to go on with.

The cookie has a random id and no more. It is sent to no script (HttpOnly), by no page of another
site (SameSite=Strict), and over TLS only where the login came so. Cookies do not know ports, so its
name has the port: consoles of brokers on one machine do not end each other's sessions.

On the control loop alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from kbroker.console.page import Field, Form, Notice, Page, Section, Tone
from kbroker.console.request import Answer, Request, see
from kbroker.console.routes import ROOT
from kbroker.console.sessions import Session, Sessions, Tries
from kbroker.limits import CONSOLE_PATH_CHARS_MAX

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.security.client_login import ClientLogin

COOKIE: Final = "kbroker_console"
_LOOK_S: Final = 60.0


class Logins:
    def __init__(self, clock: Clock, ended: Callable[[], None]) -> None:
        """`ended` is called when sessions have ended, by whatever: others have clients of them."""
        self._sessions = Sessions(clock)
        self._tries = Tries(clock)
        self._ended = ended
        self._said = 0  # of the sessions that have ended, how many it was called for
        self._timer: asyncio.TimerHandle | None = None

    def session_of(self, request: Request) -> Session | None:
        session_id = request.cookie(_cookie_of(request))
        found = self._sessions.find(session_id) if session_id else None
        self._say_ended()
        return found

    def end(self, session: Session) -> None:
        self._sessions.end(session)
        self._say_ended()

    def try_refused(self, request: Request) -> Notice | None:
        """None: this network may try, and did."""
        wait_s = self._tries.wait_s(request.network, is_local=request.is_local)
        if not wait_s:
            return None
        return Notice(Tone.WARN, "too many logins from your network", f"try again in {wait_s} s")

    def begin(
        self, request: Request, sent: Mapping[str, str], address: str, login: ClientLogin
    ) -> Answer:
        """The visitor is logged in, and goes where it wanted to."""
        self._tries.succeeded(request.network)
        known = self.session_of(request)
        if known is not None:
            self.end(known)
        session_id = self._sessions.begin(login.name, login, address)
        self._say_ended()  # of another one, if there were too many
        self._look_later()
        return see(_next_of(sent.get("next", "")), [_set_cookie(request, session_id)])

    def log_out(self, request: Request, session: Session | None) -> Answer:
        if session is not None:
            self.end(session)
        return see(f"{ROOT}/login", [_set_cookie(request, "", "; Max-Age=0")])

    def path_for(self, request: Request) -> str:
        """Of the form, for a visitor that asked for another page."""
        following = _next_of(request.address)
        return f"{ROOT}/login?{urlencode({'next': following})}"

    def page(
        self,
        request: Request,
        notice: Notice | None = None,
        sent: Mapping[str, str] | None = None,
        status: int = 200,
    ) -> Page:
        values = request.query if sent is None else sent
        fields = [
            Field("user", "User", values.get("user", "")),
            Field("password", "Password", kind="password"),
            Field("next", "", _next_of(values.get("next", "")), kind="hidden"),
        ]
        form = Form(
            "login", "As a user of the brokers", f"{ROOT}/login", fields, "Log in", writes=True
        )
        sections: list[Section] = [form] if notice is None else [notice, form]
        return Page("Log in", sections, status=status)

    def _say_ended(self) -> None:
        if self._sessions.ended != self._said:
            self._said = self._sessions.ended
            self._ended()

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        self._sessions.end_idle()
        self._say_ended()
        if len(self._sessions):
            self._look_later()


def _cookie_of(request: Request) -> str:
    return f"{COOKIE}_{request.port}"


def _set_cookie(request: Request, value: str, more: str = "") -> tuple[str, str]:
    secure = "; Secure" if request.is_secure else ""
    words = f"{_cookie_of(request)}={value}; Path={ROOT}; HttpOnly; SameSite=Strict{secure}{more}"
    return "set-cookie", words


def _next_of(path: str) -> str:
    """A path of the console, and nothing else that a browser would go to."""
    plain = path.isascii() and path.isprintable() and "\\" not in path and " " not in path
    fits = len(path) <= CONSOLE_PATH_CHARS_MAX and path.startswith(f"{ROOT}/")
    is_login = path.startswith((f"{ROOT}/login", f"{ROOT}/logout"))
    return path if plain and fits and not is_login else f"{ROOT}/"
