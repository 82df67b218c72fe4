"""/ui on the admin port: the guard, and the console once it is wanted.

The console is imported with its first visit (ADR 13), on a thread of its own and not on the control
loop: the template's library and pages cost some megabytes, which a broker without a visitor does
not have. Without that library a page names the package to install, and the next visit tries again.

Every answer below /ui has the headers of `console_guard.py`, those of errors too. On the control
loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Message, Receive, Scope, Send

from kbroker.admin import console_guard
from kbroker.admin.console_guard import Visit
from kbroker.clock import SystemClock
from kbroker.failures import Failures
from kbroker.own_thread import OwnThread

if TYPE_CHECKING:
    from kbroker.console.app import Broker, Console

ROOT: Final = "/ui"
_IMPORTS: Final = "kbroker-console-imports"
_LIBRARIES: Final = ("jinja2", "markupsafe")
_INSTALL: Final = "pip install 'kbroker[console]'"


class ConsoleMount:
    """`__call__` and `stop` on the control loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._console: Console | None = None
        self._importing: asyncio.Future[Console] | None = None
        self._ending = False
        self._failures = Failures(_IMPORTS)

    @staticmethod
    def has(path: str) -> bool:
        return path == ROOT or path.startswith(f"{ROOT}/")

    def stop(self) -> None:
        self._ending = True
        if self._console is not None:
            self._console.stop()

    @property
    def threads(self) -> Iterator[OwnThread]:
        if self._console is not None:
            yield from self._console.threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = partial(_send_guarded, send)
        config = self._broker.config
        visit = _visit_of(scope)
        refusal = console_guard.refusal_of(visit, config)
        if refusal is not None:
            await _say(send, *refusal)
            return
        try:
            console = await self._imported()
        except Exception as error:
            await self._without_console(send, error)
            return
        await console(scope, receive, send, is_local=visit.is_local(config))

    async def _without_console(self, send: Send, error: Exception) -> None:
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        if missing.partition(".")[0] in _LIBRARIES:
            await _say(send, 503, "the console is not installed", _INSTALL)
            return
        self._failures.note("importing the console", error)
        await _say(send, 503, "the console could not be imported", "see the broker's log")

    async def _imported(self) -> Console:
        if self._console is None:
            if self._importing is None or self._importing.done():
                made: Future[Console] = Future()
                OwnThread(_IMPORTS, partial(_fulfil, made, self._make)).start()
                self._importing = asyncio.wrap_future(made)
            # One visitor that goes away does not end what others wait for.
            console = await asyncio.shield(self._importing)
            if self._console is None:
                self._console = console
                if self._ending:
                    console.stop()
        return self._console

    def _make(self) -> Console:
        from kbroker._net import give_back_memory
        from kbroker.console.app import Console

        give_back_memory()  # of the modules compiled for it
        return Console(self._broker, SystemClock(), self._messages)

    def _messages(self, is_local: bool) -> str:
        return console_guard.messages_of(self._broker.config, is_local=is_local)


def _fulfil(made: Future[Any], make: Any) -> None:
    try:
        made.set_result(make())
    except BaseException as error:
        made.set_exception(error)


def _visit_of(scope: Scope) -> Visit:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    local, peer = (scope.get("server") or ("",))[0], (scope.get("client") or ("",))[0]
    return Visit(scope["method"], headers, local, peer, scope.get("http_version", ""))


async def _send_guarded(send: Send, message: Message) -> None:
    """An answer's own headers go before those of every answer."""
    if message["type"] == "http.response.start":
        own = list(message.get("headers", ()))
        names = {name.lower() for name, _ in own}
        common = [(key.lower().encode(), value.encode()) for key, value in console_guard.HEADERS]
        message = {**message, "headers": own + [each for each in common if each[0] not in names]}
    await send(message)


async def _say(send: Send, status: int, what: str, next_step: str) -> None:
    """A page without the console. The connection is closed: a body that was announced is not
    read."""
    words = f"{escape(what)}: {escape(next_step)}" if next_step else escape(what)
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>kbroker</title>'
        f"<h1>kbroker</h1><p>{words}</p></html>\n"
    ).encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"), (b"connection", b"close"),
        (b"content-length", str(len(body)).encode()),
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
