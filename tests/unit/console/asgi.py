"""The console called as an ASGI server calls it, below its guard; its pages are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from kbroker.admin.console_mount import ConsoleMount
from kbroker.config import BrokerConfig
from kbroker.console import app
from kbroker.console.asked import Asked
from kbroker.console.page import Page
from kbroker.console.routes import Found, Kind, Route
from kbroker.console.sessions import Session
from kbroker.console.visitor import LoginNeeded, Way
from kbroker.errors import ErrorCode, KafkaError
from kbroker.security.client_login import ClientLogin

FORM = "application/x-www-form-urlencoded"
PASSWORD = "secret"


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    @property
    def text(self) -> str:
        return self.body.decode()


class FakeClients:
    """In place of those of the network: `anna` may log in."""

    needs_login = False

    def __init__(self, entry: Any, clock: Any) -> None:
        self.asked: list[tuple[Session | None, bool]] = []

    def of(self, session: Session | None, *, is_local: bool) -> Any:
        if session is None and self.needs_login:
            raise LoginNeeded
        self.asked.append((session, is_local))
        return "client" if session is None else f"client of {session.name}"

    def way(self, *, is_local: bool) -> Way:
        return Way("127.0.0.1:1", ("PLAIN",) if self.needs_login else (), None)

    def log_in(self, way: Way, name: str, password: str) -> ClientLogin:
        if (name, password) != ("anna", PASSWORD):
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
        return ClientLogin("PLAIN", name, password)

    def sweep(self) -> None: ...
    def close(self) -> None: ...


class FakeBroker:
    node_id = 1

    def __init__(self, *settings: str) -> None:
        self.config = BrokerConfig.load(None, {}, list(settings))

    def figures(self) -> Any: ...
    def why(self, question: Any) -> Any: ...
    def way(self, *, is_local: bool) -> Any: ...


class Harness:
    """`pages`: what the function of the page at /ui/NAME does; `mount` is called as by a server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *settings: str) -> None:
        self.pages: dict[str, Callable[[Asked], Any]] = {}
        self.kinds: dict[str, Kind] = {}
        self.receives = 0  # how often the console called `receive`
        self.mount = ConsoleMount(FakeBroker(*settings))
        monkeypatch.setattr(app, "Clients", FakeClients)
        monkeypatch.setattr(app, "find", self._find)
        monkeypatch.setattr(app, "_is_there", lambda module: True)
        monkeypatch.setattr(app, "_function", lambda route: self.pages[route.module])
        monkeypatch.setattr(app, "_units_of", lambda route, asked: [])

    def _find(self, path: str) -> Found | None:
        name = path.removeprefix("/ui").strip("/")
        if name not in self.pages:
            return None
        return Found(Route(name, name, kind=self.kinds.get(name, Kind.PAGE)), {"name": name})

    def page(self, name: str, make: Callable[[Asked], Page], kind: Kind = Kind.PAGE) -> None:
        self.pages[name], self.kinds[name] = make, kind

    def run(self, *calls: Any) -> list[Any]:
        """What each of these coroutines gives, one after the other; then the console ends."""

        async def all_of_them() -> list[Any]:
            try:
                return [await each for each in calls]
            finally:
                threads = list(self.mount.threads)
                self.mount.stop()
                for thread in threads:
                    await asyncio.to_thread(thread.await_end)

        return asyncio.run(all_of_them())

    def get(self, path: str, **how: Any) -> Answer:
        answer: Answer = self.run(self.ask(path, **how))[0]
        return answer

    async def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        body: bytes | None = None,
        cookie: str = "",
        headers: Mapping[str, str] = {},
        gone: asyncio.Event | None = None,
        took: Callable[[bytes], Any] = lambda piece: None,
        prolong: Callable[[], Any] = lambda: None,
    ) -> Answer:
        """`gone`: set when the visitor goes; `took` is called with each piece of the answer,
        `prolong` when the connection is to last longer."""
        words, _, query = path.partition("?")
        named = {"host": "localhost:9644", "cookie": cookie, **headers}
        if body is not None:
            named = {"content-type": FORM, "content-length": str(len(body)), **named}
        sent: list[dict[str, Any]] = []
        scope = {
            "type": "http", "method": method, "path": words, "raw_path": words.encode(),
            "query_string": query.encode(), "scheme": "http", "server": ("127.0.0.1", 9644),
            "client": ("127.0.0.1", 5), "http_version": "1.1",
            "extensions": {"kbroker.prolong": {"call": prolong}},
            "headers": [(key.encode(), value.encode()) for key, value in named.items() if value],
        }  # fmt: skip
        waiting = [{"type": "http.request", "body": body or b"", "more_body": False}]
        left = gone or asyncio.Event()

        async def receive() -> dict[str, Any]:
            self.receives += 1
            if waiting:
                return waiting.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                took(message.get("body", b""))

        await self.mount(scope, receive, send)
        if not sent:
            return Answer(0, [], b"")
        pieces = [each.get("body", b"") for each in sent[1:]]
        found = [(key.decode(), value.decode()) for key, value in sent[0]["headers"]]
        return Answer(sent[0]["status"], found, b"".join(pieces))
