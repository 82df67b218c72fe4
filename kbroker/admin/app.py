"""The admin port's pages: /metrics, /healthz, /readyz, /why, /ui, and an index of them.

Place in the flow: `admin/server.py` serves this application on the control loop. starlette comes in
through this file and that of the console. Only GET and HEAD, no bodies: nothing here changes
anything, but below /ui (`console_mount.py`), which has a guard of its own. What takes longer than a
page is done by the admin thread (`Run`), so that the loop stays free.

| path | answers |
|---|---|
| /healthz | 200 while the process can answer |
| /readyz | 200 while Kafka's requests are accepted and every log directory is there, else 503 |
| /metrics | Prometheus; by Accept in text or OpenMetrics; `?name=` filters |
| /why | JSON: what is in the way of a group, a topic or a partition (`observe/why`) |
| /ui | the console |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kbroker.admin.console_mount import ConsoleMount
from kbroker.admin.hosts import is_allowed, is_from_here
from kbroker.admin.scrape import Run, Scrapes, Source
from kbroker.limits import ADMIN_NAMES_MAX, ADMIN_QUESTIONS_MAX
from kbroker.observe.why.facts import Question
from kbroker.observe.why.question import parse
from kbroker.outside_text import printable

__all__ = ["Backend", "Run", "make_app"]

_NO_STORE: Final = {"Cache-Control": "no-store"}
_RETRY: Final = {**_NO_STORE, "Retry-After": "1"}
_CLOSE: Final = {"Connection": "close"}


class Check(Protocol):
    """One condition of readiness."""

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def detail(self) -> str: ...


class Readiness(Protocol):
    """Whether Kafka's requests are accepted."""

    phase: str

    @property
    def running(self) -> bool: ...
    def checks(self) -> Sequence[Check]: ...


class Answers(Protocol):
    def why(self, question: Question) -> Mapping[str, Any]:
        """On the admin thread, while requests are accepted."""
        ...


class Backend(Source, Protocol):
    """What the pages show; `server.broker.Broker` is one."""

    @property
    def readiness(self) -> Readiness: ...
    @property
    def observation(self) -> Answers: ...


class Page(NamedTuple):
    """A line of the index."""

    path: str
    help: str


PAGES: Final = (
    Page("/metrics", "figures for Prometheus; ?name=BytesInPerSec filters by the end of the name"),
    Page("/healthz", "200 while the process answers"),
    Page("/readyz", "200 while requests are accepted, else 503 and why; ?verbose says more"),
    Page("/ui", "the console, for browsers"),
    Page("/why", "JSON: ?consumer=GROUP, ?produce=TOPIC, ?partition=TOPIC/0 or ?slow"),
)


def make_app(backend: Backend, run: Run, console: ConsoleMount | None = None) -> ASGIApp:
    pages = _Pages(backend, Scrapes(backend, run), run)
    routes = [
        Route("/", pages.index),
        Route("/healthz", pages.healthz),
        Route("/readyz", pages.readyz),
        Route("/metrics", pages.metrics),
        Route("/why", pages.why),
    ]
    return _guarded(Starlette(routes=routes), console)


def _guarded(app: ASGIApp, console: ConsoleMount | None) -> ASGIApp:
    """Refuses a request that announces a body before a byte of it is read, and one that names
    another host (hosts.py)."""
    no_bodies = PlainTextResponse("no bodies here\n", 413, headers=_CLOSE)
    other_host = PlainTextResponse(
        "this is not the host that you named: ask with Host: localhost\n", 421, headers=_CLOSE
    )

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if console is not None and console.has(scope["path"]):
            await console(scope, receive, send)
            return
        headers = dict(scope.get("headers", ()))
        length = headers.get(b"content-length", b"0").strip(b"0")
        host = headers.get(b"host")
        local_address = (scope.get("server") or ("",))[0]
        if length or b"transfer-encoding" in headers:
            await no_bodies(scope, receive, send)
        elif not is_allowed(local_address, None if host is None else host.decode("latin-1")):
            await other_host(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


class _Pages:
    """One method for each path, on the control loop."""

    def __init__(self, backend: Backend, scrapes: Scrapes, run: Run) -> None:
        self._backend = backend
        self._scrapes = scrapes
        self._run = run
        self._answering = 0
        rows = "".join(
            f'<li><a href="{page.path}">{page.path}</a>: {escape(page.help)}</li>' for page in PAGES
        )
        self._index = f"<!doctype html><title>kbroker</title><h1>kbroker</h1><ul>{rows}</ul>\n"

    async def index(self, request: Request) -> Response:
        return HTMLResponse(self._index)

    async def healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n", headers=_NO_STORE)

    async def readyz(self, request: Request) -> Response:
        checks = self._backend.readiness.checks()
        failing = [check for check in checks if not check.ok]
        listed = checks if "verbose" in request.query_params else failing
        lines = [f"[{'+' if it.ok else '-'}] {it.name}: {it.detail}\n" for it in listed]
        lines.append("not ready\n" if failing else "ok\n")
        return PlainTextResponse("".join(lines), 503 if failing else 200, headers=_NO_STORE)

    async def metrics(self, request: Request) -> Response:
        readiness = self._backend.readiness
        if not readiness.running:
            return PlainTextResponse(f"{readiness.phase}\n", 503, headers=_RETRY)
        query = request.query_params
        names = tuple(query.getlist("name") + query.getlist("name[]"))
        if len(names) > ADMIN_NAMES_MAX:
            return PlainTextResponse(f"more than {ADMIN_NAMES_MAX} names\n", 400)
        page = await self._scrapes.page(names, request.headers.get("accept", ""))
        if page is None:
            return PlainTextResponse("too many scrapes at once\n", 503, headers=_RETRY)
        return Response(page.body, headers={**_NO_STORE, "Content-Type": page.content_type})

    async def why(self, request: Request) -> Response:
        # It names principals, clients and rules, which are not for each host that reads metrics.
        local_address = (request.scope.get("server") or ("",))[0]
        version = request.scope.get("http_version", "")
        if not is_from_here(local_address, version, (name for name, _ in request.headers.raw)):
            return PlainTextResponse(
                "ask from this machine, at 127.0.0.1, by HTTP/1.1 and without a proxy\n",
                403,
                headers=_NO_STORE,
            )
        readiness = self._backend.readiness
        if not readiness.running:
            return PlainTextResponse(f"{readiness.phase}\n", 503, headers=_RETRY)
        try:
            question = parse(dict(request.query_params))
        except ValueError as error:
            return PlainTextResponse(f"{printable(str(error))}\n", 400, headers=_NO_STORE)
        if self._answering >= ADMIN_QUESTIONS_MAX:
            return PlainTextResponse("another question is being answered\n", 503, headers=_RETRY)
        self._answering += 1
        try:
            answer = await self._run(lambda: self._backend.observation.why(question))
        finally:
            self._answering -= 1
        return JSONResponse(answer, headers=_NO_STORE)
