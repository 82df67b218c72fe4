"""HTTP on the admin port: uvicorn inside the control loop, with bounds of our own around it. Of
https:// `secure_sockets.py` accepts the connections.

Imported when the first connection comes, by the thread `kbroker-admin`; everything else here runs
on the control loop. uvicorn comes in through this file alone. It is used as a library: no signal
handlers (the loop's thread is not the main one), no logging set-up, no access log, no lifespan.

Bounds, beside those of limits.py: a connection is aborted when its request is not complete, or its
answer not taken, in time, and sooner where there are too many. So is one that sends much more
before its answer. uvicorn itself has a timeout only between two requests, so one timer per
connection does it all, from its first moment to its last.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kbroker.admin.app import Backend, Run, make_app
from kbroker.admin.console_mount import ConsoleMount
from kbroker.admin.crowd import gives_way
from kbroker.admin.secure_sockets import Context, SecureSockets
from kbroker.limits import (
    ADMIN_AHEAD_BYTES_MAX,
    ADMIN_BACKLOG,
    ADMIN_CONNECTIONS_MAX,
    ADMIN_HEADER_BYTES_MAX,
    ADMIN_KEEP_ALIVE_S,
    ADMIN_REQUEST_TIMEOUT_S,
)
from kbroker.own_thread import OwnThread

logger: Final = logging.getLogger("kbroker.admin")

# How long answers on their way may take at a stop.
_STOP_TIMEOUT_S: Final = 1


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 connection under one timer."""

    _timer: asyncio.TimerHandle | None = None
    _in_request: bool = True  # a fresh connection is one that owes a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._rearm(ADMIN_REQUEST_TIMEOUT_S)

    def _make_room(self) -> None:
        """Where there are too many, another connection whose peer owes something gives way: those
        that send no request, or do not read, would keep out those that do."""
        held = [
            each
            for each in self.connections
            if isinstance(each, BoundedProtocol) and not each.transport.is_closing()
        ]
        if len(held) > ADMIN_CONNECTIONS_MAX:
            waiting = [
                each
                for each in held
                if each is not self and (not each.is_answering or each.is_unread)
            ]
            gives_way(waiting or [self], held, lambda each: each.host).transport.abort()

    @property
    def host(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def is_answering(self) -> bool:
        """Whether a request is complete and its answer is not."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_unread(self) -> bool:
        """Whether the peer has not taken all that was written."""
        return bool(self.transport.get_write_buffer_size())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_request:
            self._in_request = True
            self._rearm(ADMIN_REQUEST_TIMEOUT_S)  # for all of it: later bytes do not prolong it
        super().data_received(data)
        # Bytes after a request are kept until it is answered, and each request lets more be read.
        if self.is_answering and len(self.conn.trailing_data[0]) > ADMIN_AHEAD_BYTES_MAX:
            self.transport.abort()

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # the request's that has just begun, if one has
            self.scope["extensions"] = {"kbroker.prolong": {"call": self._prolong}}

    def _prolong(self) -> None:
        """An answer that is a stream has been taken so far: it may go on for as long again."""
        if self.is_answering and not self.is_unread:
            self._rearm(ADMIN_REQUEST_TIMEOUT_S)

    def on_response_complete(self) -> None:
        self._in_request = False
        # What the peer has not taken by then it will not want.
        unsent = self.transport.is_closing() or self.transport.get_write_buffer_size() > 0
        self._rearm(ADMIN_REQUEST_TIMEOUT_S if unsent else ADMIN_KEEP_ALIVE_S)
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """uvicorn's own idle timeout, which ours makes superfluous."""

    def _rearm(self, after_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(after_s, self.transport.abort)


class _Uvicorn(uvicorn.Server):
    """Without the tick: an idle broker is not woken ten times a second for it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()
        self.ended = asyncio.Event()

    async def main_loop(self) -> None:
        self.serving.set()
        await self.ended.wait()


class AdminSocket(Protocol):
    """A listening socket, and whether its clients speak TLS."""

    @property
    def bound(self) -> socket.socket: ...
    @property
    def tls(self) -> bool: ...


class AdminServer:
    """`start` and `stop` on the control loop; what `server.admin_port` asks of the HTTP side."""

    def __init__(
        self,
        backend: Backend,
        sockets: Sequence[AdminSocket],
        run: Run,
        context: Context,
        console: ConsoleMount | None = None,
    ) -> None:
        """`context`: for the next connection of a socket with TLS."""
        # Scrapes and answers are short: lines about them would only hide others.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        self._sockets = list(sockets)
        self._console = console
        self._config = uvicorn.Config(
            make_app(backend, run, console),
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=ADMIN_BACKLOG,
            timeout_keep_alive=2 * ADMIN_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_TIMEOUT_S,
            h11_max_incomplete_event_size=ADMIN_HEADER_BYTES_MAX,
        )
        self._context = context
        self._server: _Uvicorn | None = None
        self._secure: SecureSockets | None = None
        self._task: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        """Raises what uvicorn ends with, where it ends before it serves; then it may be tried again
        with the same sockets, of which uvicorn closes copies."""
        server = self._server = _Uvicorn(self._config)
        copies = [each.bound.dup() for each in self._sockets if not each.tls]
        self._task = asyncio.create_task(self._server.serve(copies))
        serving = asyncio.create_task(self._server.serving.wait())
        await asyncio.wait({self._task, serving}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            serving.cancel()
            for opened in getattr(self._server, "servers", ()):
                opened.close()
            for copy in copies:
                copy.close()
            self._task.result()
            raise RuntimeError("uvicorn has ended before it served")
        secure = [each.bound for each in self._sockets if each.tls]
        self._secure = SecureSockets(secure, self._context, lambda: self._connection(server))
        self._secure.start()
        logger.debug("the admin port is served")

    def _connection(self, server: _Uvicorn) -> BoundedProtocol:
        """For a connection that uvicorn has not accepted."""
        return BoundedProtocol(self._config, server.server_state, server.lifespan.state)

    @property
    def threads(self) -> Iterable[OwnThread]:
        """Those of the console, once it has had a visitor."""
        return () if self._console is None else self._console.threads

    async def stop(self) -> None:
        if self._console is not None:
            self._console.stop()
        if self._server is None or self._task is None:
            return
        if self._secure is not None:
            await self._secure.stop()
        self._server.ended.set()
        await asyncio.wait([self._task])
