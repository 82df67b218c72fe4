"""The admin port: bound at start, and no more than that until a client connects.

    bind (early, cheap) -> one thread asleep in poll -> the first connection -> import HTTP -> serve

The HTTP side costs 9 MB and a third of a second of imports (ADR 13), so an idle broker has only the
bound sockets and the thread `kbroker-admin`, which sleeps in poll(2) on them. With the first
connection it imports the HTTP side (`serve`, handed down from the command line, since server does
not know admin) and hands the sockets to the control loop; connections wait in the kernel's backlog
meanwhile. That may be during the start: who asks while logs are recovered gets an answer. Where the
imports or the first moments of HTTP fail (no descriptors, no memory), they are tried again after a
pause, as long as a connection waits: a probe that is never answered has a healthy broker killed.

Afterwards the same thread is the worker that collects metrics, so that the loop's other tenants do
not wait for a scrape (`run`, one job at a time; `ADMIN_JOBS_MAX` scrapes and
`ADMIN_QUESTIONS_MAX` questions wait, more are refused).

The main thread binds, starts and stops. `stop` ends HTTP, then the thread, then closes the sockets.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from kbroker.config.admin_listeners import AdminListener
from kbroker.errors import AddressInUse, UserError
from kbroker.failures import Failures
from kbroker.limits import (
    ADMIN_BACKLOG,
    ADMIN_JOBS_MAX,
    ADMIN_QUESTIONS_MAX,
    TASK_RETRY_MS,
    THREAD_JOIN_TIMEOUT_MS,
)
from kbroker.own_thread import OwnThread, await_ends

if TYPE_CHECKING:
    from concurrent.futures import Future

logger: Final = logging.getLogger("kbroker.admin")

THREAD_NAME: Final = "kbroker-admin"
# A free port of one address may be taken on the next one; then another one is tried.
_FREE_PORT_TRIES: Final = 10
_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

T = TypeVar("T")
Job = Callable[[], None]


class AdminSocket(NamedTuple):
    """A listening socket; `tls`: its clients speak TLS."""

    bound: socket.socket
    tls: bool


class HttpServer(Protocol):
    """It serves the sockets once a client has connected."""

    async def start(self) -> None:
        """Runs on the control loop."""
        ...

    @property
    def threads(self) -> Iterable[OwnThread]:
        """Its own, of which a stop waits for the end."""
        ...

    async def stop(self) -> None:
        """Runs on the control loop; every connection is closed when it returns. May come twice."""
        ...


# Does a piece of work on the admin thread, for the control loop: `AdminPort.run`.
Run = Callable[[Callable[[], Any]], Awaitable[Any]]
# Imports the HTTP side; called on the admin thread, once.
Serve = Callable[[Sequence[AdminSocket]], HttpServer]
# Runs a coroutine on the control loop, which it starts if it has to.
Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]


class AdminPort:
    """`bind`, `start`, `stop`, each once, by the main thread; `run` by the control loop."""

    def __init__(self, serve: Serve, submit: Submit) -> None:
        self._serve = serve
        self._submit = submit
        self._sockets: list[AdminSocket] = []
        self._jobs: deque[Job] = deque()
        self._jobs_changed = threading.Condition()
        self._waiting = 0  # of the control loop alone
        self._server: HttpServer | None = None
        self._ending = False
        self._gone = False  # the thread is lost; under the condition
        self._wake = -1  # an eventfd while the thread is there
        self._thread: OwnThread | None = None
        self.failures: Final = Failures("admin port")
        self.url = ""

    def bind(self, listeners: Sequence[AdminListener], *, may_be_taken: bool) -> None:
        """Raises AddressInUse, or with `may_be_taken` says so in the log and stays without."""
        try:
            self._sockets = _bind_all(listeners)
        except AddressInUse as error:
            if not may_be_taken:
                raise
            logger.warning("no metrics and health over HTTP: %s", error.message)
        if self._sockets:
            first = self._sockets[0]
            host, port = first.bound.getsockname()[:2]
            self.url = str(AdminListener(reachable(host), port, first.tls))

    def start(self) -> None:
        if self._sockets:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._thread = OwnThread(THREAD_NAME, self._work, self._given_up)
            self._thread.start()

    def stop(self) -> None:
        """Close every connection, end the thread after the job it is in, close the sockets."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ending = True
        server = self._server
        if server is not None:
            console = list(server.threads)
            self._submit(server.stop()).result(THREAD_JOIN_TIMEOUT_MS / 1000)
            await_ends(console)
        with self._jobs_changed:
            self._jobs_changed.notify()
        os.eventfd_write(self._wake, 1)
        if not thread.await_end():
            return
        for each in self._sockets:
            each.bound.close()
        os.close(self._wake)

    @property
    def threads(self) -> list[OwnThread]:
        """Its own, and those of the server."""
        own = [] if self._thread is None else [self._thread]
        return own if self._server is None else [*own, *self._server.threads]

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, done by the admin thread; `Busy` when too many wait already, or
        the thread is lost.

        On the control loop only. Cancelling does not take the job back.
        """
        import asyncio  # imported long since: this runs on a loop
        from concurrent.futures import Future

        future: Future[T] = Future()
        with self._jobs_changed:
            if self._gone or self._waiting >= ADMIN_JOBS_MAX + ADMIN_QUESTIONS_MAX:
                raise Busy
            self._jobs.append(lambda: _fulfil(future, work))
            self._jobs_changed.notify()
        self._waiting += 1
        try:
            return await asyncio.wrap_future(future)
        finally:
            self._waiting -= 1

    # --- the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._server is None and not self._serve_the_first():
            return
        while (job := self._next_job()) is not None:
            job()

    def _serve_the_first(self) -> bool:
        said = ""
        while self._wait_for_a_connection():
            try:
                server = self._serve(self._sockets)
                self._submit(server.start()).result()
                self._server = server
                if self._ending:  # asked for while the imports ran, before there was a server
                    self._submit(server.stop()).result()
                return True
            except Exception as error:
                before, said = said, str(error)
                if said == before:
                    self.failures.counted()
                else:
                    self.failures.note("serving the admin port", error)
            self._pause()
        return False

    def _given_up(self) -> None:
        """Waiting callers get their answer; later callers find the thread gone."""
        with self._jobs_changed:
            self._gone = True
            jobs, self._jobs = self._jobs, deque()
        for job in jobs:
            job()

    def _next_job(self) -> Job | None:
        with self._jobs_changed:
            while not self._jobs and not self._ending:
                self._jobs_changed.wait()
            return None if self._ending else self._jobs.popleft()

    def _pause(self) -> None:
        """Before another try; a stop ends it."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.poll(TASK_RETRY_MS)

    def _wait_for_a_connection(self) -> bool:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for each in self._sockets:
            poll.register(each.bound, select.POLLIN)
        poll.poll()
        return not self._ending


class Busy(Exception):
    """More jobs wait than are let in."""


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


def reachable(host: str) -> str:
    """An address to connect to from here, for one that was bound."""
    return {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(host, host)


def _bind_all(listeners: Sequence[AdminListener]) -> list[AdminSocket]:
    for attempt in range(_FREE_PORT_TRIES):
        try:
            return _bind_once(listeners)
        except AddressInUse:
            free = any(listener.port == 0 for listener in listeners)
            if not free or attempt == _FREE_PORT_TRIES - 1:
                raise
    return []


def _bind_once(listeners: Sequence[AdminListener]) -> list[AdminSocket]:
    """One socket for each; an address that this machine lacks is left out beside one it has."""
    opened: list[AdminSocket] = []
    absent: OSError | None = None
    free_ports: dict[bool, int] = {}  # that of http is another than that of https
    try:
        for listener in listeners:
            port = listener.port or free_ports.get(listener.tls, 0)
            try:
                bound = _bind(listener.host, port)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise _explained(listener, port, error) from error
                absent = error
                continue
            opened.append(AdminSocket(bound, listener.tls))
            if listener.port == 0:
                free_ports[listener.tls] = bound.getsockname()[1]
        if absent is not None and not opened:
            raise _explained(listeners[0], listeners[0].port, absent)
    except BaseException:
        for each in opened:
            each.bound.close()
        raise
    return opened


def _bind(host: str, port: int) -> socket.socket:
    if host == "":
        try:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=ADMIN_BACKLOG, dualstack_ipv6=True
            )
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _ABSENT:
                raise
            host = "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=ADMIN_BACKLOG)


def _explained(listener: AdminListener, port: int, error: OSError) -> UserError:
    place = listener._replace(port=port)
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(
            f"{place} of admin.listeners is taken by another process",
            "stop it, or set admin.listeners to another port, to port 0 or to none",
        )
    return UserError(
        f"cannot listen on {place}: {error.strerror}",
        "set admin.listeners to an address of this machine",
    )
