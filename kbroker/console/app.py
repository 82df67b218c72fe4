"""The console as an ASGI application: from a request to a page, over a thread of its own.

    admin/console_mount.py (guard) -> Console -> routes.find -> Worker thread: visitor's client,
        pages.NAME.make(asked), render or document -> answer

Imported with the first visit, since what it needs is not in a broker otherwise. Here is the control
loop's part, which waits for threads only, and for the visitor; a visitor that goes away ends the
page. The threads are `kbroker-console`, and `kbroker-console-records` for pages that read records.

Any error becomes an answer: `trouble.py` knows those that a visitor can do something about; others
are noted as a failure of the thread and answered with 500, without their text.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.clock import let_go_of_gil
from kbroker.console import render, streams
from kbroker.console.asked import Asked, Here, Refused
from kbroker.console.document import as_json
from kbroker.console.login import Logins
from kbroker.console.page import Notice, Page, Tone, Unit
from kbroker.console.render import Frame, Place
from kbroker.console.request import (
    JSON,
    Answer,
    Gone,
    Receive,
    Request,
    Scope,
    Send,
    form_of,
    json_error,
    request_of,
    see,
)
from kbroker.console.routes import ROOT, ROUTES, Found, Kind, Route, find
from kbroker.console.sessions import Session
from kbroker.console.trouble import Trouble, trouble_of
from kbroker.console.visitor import Clients, Entry, LoginNeeded
from kbroker.console.worker import Job, Worker
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.limits import (
    CONSOLE_DOWNLOAD_MS_MAX,
    CONSOLE_PAGE_MS_MAX,
    CONSOLE_STREAMS_MAX,
    CONSOLE_STREAMS_PER_VISITOR_MAX,
)

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.own_thread import OwnThread

THREAD_NAME: Final = "kbroker-console"
_WRITE: Final = "admin.console.write"
# How often the connection of a stream is kept while its next step is waited for.
_PROLONG_S: Final = 5.0
_FAULT: Final = Trouble(500, "the page could not be made", "see the broker's log")
# Done when the visitor has gone.
Left = asyncio.Future[None]


class Broker(Here, Entry, Protocol):
    """What the console needs of the broker that serves it; `server.console_port` has one."""


class Lane:
    """A thread, and the clients of its visitors."""

    def __init__(self, name: str, broker: Broker, clock: Clock) -> None:
        self.clients: Final = Clients(broker, clock)
        self.worker: Final = Worker(name, clock, self.clients.sweep, self.clients.close)


class Console:
    """`__call__` and `stop` on the control loop."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        messages: Callable[[bool], str],
    ) -> None:
        """`messages` says which of a message a visitor may see, who is on this machine or not."""
        self._broker = broker
        self._clock = clock
        self._failures = Failures(THREAD_NAME)  # while there is no thread
        self._messages = messages
        self._lanes = (
            Lane(THREAD_NAME, broker, clock),
            Lane(f"{THREAD_NAME}-records", broker, clock),
        )
        self._logins = Logins(clock, self._sweep)
        self._streams: Counter[tuple[str, str]] = Counter()  # by visitor
        self._places = _navigation()

    def stop(self) -> None:
        """No page is made any more; the threads end after what they are in."""
        for lane in self._lanes:
            lane.worker.stop()

    @property
    def threads(self) -> Iterator[OwnThread]:
        for lane in self._lanes:
            if lane.worker.thread is not None:
                yield lane.worker.thread

    async def __call__(self, scope: Scope, receive: Receive, send: Send, *, is_local: bool) -> None:
        try:
            request = request_of(scope, is_local=is_local)
        except Refused as error:
            await json_error(error.status, error.what).send(send)
            return
        session = self._logins.session_of(request)
        with suppress(Gone):
            try:
                answer = await self._answer(request, session, receive, send)
            except (Gone, asyncio.CancelledError):
                raise
            except Exception as error:
                answer = self._trouble(request, session, error)
            if answer is not None:
                await answer.send(send)

    # --- what is answered -------------------------------------------------------------------------

    async def _answer(
        self, request: Request, session: Session | None, receive: Receive, send: Send
    ) -> Answer | None:
        """None: it has been sent."""
        static = render.STATIC_FILES.get(request.path)
        if static is not None:
            kept = [("cache-control", "private, max-age=31536000, immutable")]
            return Answer(200, static.body, static.content_type, kept)
        if request.path in (f"{ROOT}/login", f"{ROOT}/logout"):
            return await self._login(request, session, receive)
        found = find(request.path)
        if found is None or not _is_there(found.route.module):
            raise Refused("there is no such page", "see the navigation", 404)
        query, sent = request.query, False
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refused("this page is read, or sent by a form", status=405)
        if found.route.kind is Kind.WRITE:
            if not self._broker.config[_WRITE]:
                raise Refused("the console only reads here", f"set {_WRITE}=true", 403)
            if sent := request.method == "POST":
                query = await form_of(request, receive)
        elif request.method == "POST":
            raise Refused("this page is only read", "ask with GET", 405)
        ask = partial(self._asked, request, found, query, sent)
        with _watched(receive) as left:
            if found.route.kind in (Kind.TAIL, Kind.DOWNLOAD):
                await self._stream(request, session, found, ask, left, send)
                return None
            return await self._page(request, session, found, ask, sent, left)

    async def _page(
        self,
        request: Request,
        session: Session | None,
        found: Found,
        ask: Callable[..., Asked],
        sent: bool,
        left: Left,
    ) -> Answer:
        lane = self._lanes[found.route.long]
        frame = self._frame(request, session, found.route)

        def work(job: Job) -> Answer:
            if sent and job.is_half_over:
                raise Refused("nothing was changed: it waited for too long", "send it again", 503)
            client = lane.clients.of(session, is_local=request.is_local)
            page = _function(found.route)(ask(client, job.pause))
            # What was changed is no less so if it took long: the visitor reads that it is done.
            pause = let_go_of_gil if sent else job.pause
            pause()
            if request.wants_json:
                return Answer(page.status, as_json(page, pause), JSON)
            return Answer(page.status, render.as_html(page, frame, pause))

        answer: Answer = await self._run(lane, work, CONSOLE_PAGE_MS_MAX, request, left)
        return answer

    async def _stream(
        self,
        request: Request,
        session: Session | None,
        found: Found,
        ask: Callable[..., Asked],
        left: Left,
        send: Send,
    ) -> None:
        visitor = _visitor_of(request, session)
        for count, most, whose in (
            (self._streams[visitor], CONSOLE_STREAMS_PER_VISITOR_MAX, "of yours "),
            (self._streams.total(), CONSOLE_STREAMS_MAX, ""),
        ):
            if count >= most:
                words = f"{most} tails and downloads {whose}are under way"
                raise Refused(words, "end one of them", 503)
        if request.method != "GET":
            raise Refused("a stream has no head of its own", "ask with GET", 405)
        lane = self._lanes[found.route.long]
        units: list[Unit] = []

        def steps(pause: Callable[[], None]) -> Iterator[Any]:
            asked = ask(lane.clients.of(session, is_local=request.is_local), pause)
            if found.route.kind is Kind.TAIL:
                units.extend(_units_of(found.route, asked))
            items: Iterator[Any] = _function(found.route)(asked)
            return items

        async def run(work: Callable[[Job], Any]) -> Any:
            if session is not None and session.ended:
                raise LoginNeeded
            return await self._run(lane, work, CONSOLE_DOWNLOAD_MS_MAX, request, left)

        self._streams[visitor] += 1
        try:
            if found.route.kind is Kind.TAIL:
                await streams.send_tail(request, send, run, steps, units, self._explained)
            else:
                await streams.send_download(request, send, run, steps, "messages", self._explained)
        finally:
            self._streams -= Counter([visitor])  # without those that have none

    async def _login(self, request: Request, session: Session | None, receive: Receive) -> Answer:
        if request.path.endswith("/logout"):
            if request.method != "POST":
                raise Refused("log out by the button", status=405)
            return self._logins.log_out(request, session)
        if request.method != "POST":
            return self._shown(request, session, self._logins.page(request))
        sent = await form_of(request, receive)
        lane = self._lanes[0]

        def work(job: Job) -> Any:
            way = lane.clients.way(is_local=request.is_local)
            if not way.mechanisms:
                raise Refused("visitors do not log in here", "open the overview")
            return way, lane.clients.log_in(way, sent.get("user", ""), sent.get("password", ""))

        refusal = self._logins.try_refused(request)
        if refusal is not None:
            return self._shown(request, session, self._logins.page(request, refusal, sent, 429))
        try:
            with _watched(receive) as left:
                way, login = await self._run(lane, work, CONSOLE_PAGE_MS_MAX, request, left)
        except KafkaError as error:
            if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            refused = Notice(Tone.BAD, "the broker does not let you in: no such user or password")
            return self._shown(request, session, self._logins.page(request, refused, sent, 401))
        return self._logins.begin(request, sent, way.address, login)

    # --- on a thread ------------------------------------------------------------------------------

    async def _run(
        self,
        lane: Lane,
        work: Callable[[Job], Any],
        time_ms: int,
        request: Request,
        left: Left,
    ) -> Any:
        """What the work returns. Raises what it raises; Busy; Gone, and then it is given up."""
        job = lane.worker.submit(work, time_ms)
        made = asyncio.wrap_future(job.future)
        try:
            while not made.done() and not left.done():
                await asyncio.wait(
                    {made, left}, timeout=_PROLONG_S, return_when=asyncio.FIRST_COMPLETED
                )
                if time_ms > CONSOLE_PAGE_MS_MAX:
                    request.prolong()
            if not made.done():
                raise Gone
            return made.result()
        finally:
            if not made.done():
                job.leave()
                made.cancel()

    def _sweep(self) -> None:
        """Sessions have ended: their clients are closed, where there are any."""
        for lane in self._lanes:
            if lane.worker.thread is not None:
                with suppress(Exception):
                    lane.worker.submit(lambda job: None, CONSOLE_PAGE_MS_MAX)

    def _asked(
        self,
        request: Request,
        found: Found,
        query: Mapping[str, str],
        sent: bool,
        client: Any,
        pause: Callable[[], None],
    ) -> Asked:
        return Asked(
            path=found.parameters,
            query={name: value for name, value in query.items() if name != "format"},
            client=client,
            here=self._broker,
            now_ms=self._clock.wall_ms(),
            may_write=bool(self._broker.config[_WRITE]),
            messages=self._messages(request.is_local),
            pause=pause,
            sent=sent,
        )

    # --- around a page ----------------------------------------------------------------------------

    def _trouble(self, request: Request, session: Session | None, error: Exception) -> Answer:
        if isinstance(error, KafkaError) and error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            if session is not None:
                self._logins.end(session)
            error = LoginNeeded()
        if isinstance(error, LoginNeeded):
            if request.wants_json or request.method == "POST":
                return json_error(401, "log in first", f"at {ROOT}/login, and send its cookie")
            return see(self._logins.path_for(request))
        trouble = self._trouble_of(error)
        if request.wants_json:
            return json_error(*trouble)
        notice = Notice(Tone.BAD, trouble.what, trouble.next_step)
        page = Page("This did not work", [notice], status=trouble.status)
        return self._shown(request, session, page)

    def _explained(self, error: Exception) -> str:
        return str(self._trouble_of(error))

    def _trouble_of(self, error: Exception) -> Trouble:
        """A fault of ours is noted."""
        trouble = trouble_of(error)
        if trouble is not None:
            return trouble
        thread = self._lanes[0].worker.thread
        failures = self._failures if thread is None else thread.failures
        failures.note("a page of the console", error)
        return _FAULT

    def _shown(self, request: Request, session: Session | None, page: Page) -> Answer:
        """Of a page that is a few lines: on the control loop."""
        frame = self._frame(request, session, None)
        return Answer(page.status, render.as_html(page, frame, lambda: None))

    def _frame(self, request: Request, session: Session | None, route: Route | None) -> Frame:
        at = "" if route is None else route.pattern.partition("/")[0] or "overview"
        places = [
            place._replace(current=(place.path.removeprefix(f"{ROOT}/") or "overview") == at)
            for place in self._places
        ]
        json_path = ""
        if route is not None and route.kind is Kind.PAGE:
            joint = "&" if "?" in request.address else "?"
            json_path = f"{request.address}{joint}format=json"
        return Frame(
            name=f"kbroker {self._broker.node_id}",
            navigation=places,
            visitor="" if session is None else session.name,
            footer=f"Broker {self._broker.node_id}. Times are in UTC.",
            json_path=json_path,
        )


@contextmanager
def _watched(receive: Receive) -> Iterator[Left]:
    """One a request, however many steps its answer has: each call of `receive` lets the server read
    on, and it keeps what it reads after the request."""
    left = asyncio.ensure_future(_until_gone(receive))
    try:
        yield left
    finally:
        left.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _navigation() -> list[Place]:
    return [
        Place(each.title, f"{ROOT}/{each.pattern}", each.key)
        for each in ROUTES
        if each.title and _is_there(each.module)
    ]


@cache
def _is_there(module: str) -> bool:
    return find_spec(f"kbroker.console.{module}") is not None


def _function(route: Route) -> Callable[[Asked], Any]:
    """Imports its module: on the thread."""
    found: Callable[[Asked], Any] = getattr(_module(route), route.function)
    return found


def _units_of(route: Route, asked: Asked) -> list[Unit]:
    """Of the rows of a tail."""
    return [each.unit for each in _module(route).columns_of(asked)]


def _module(route: Route) -> Any:
    return import_module(f"kbroker.console.{route.module}")


def _visitor_of(request: Request, session: Session | None) -> tuple[str, str]:
    """Streams are counted by this: the user, from any address, or the network without a login."""
    if session is not None and session.login is not None:
        return "user", session.name
    return "network", request.network
