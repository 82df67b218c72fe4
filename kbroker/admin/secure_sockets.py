"""HTTPS on the admin port: TLS in front of the HTTP of `server.py`.

Connections are accepted here and not by uvicorn, for two reasons. Each gets the context of the
moment it is accepted, so a certificate that is replaced holds from the next connection on. And a
connection is none of uvicorn's before its handshake is over: those that do not go on with it are
bounded here, in number and in time. Where there are too many, one gives way (`crowd.py`).

A handshake is computed on the control loop, which replicas share: a pause after each connection
bounds what strangers can take of it.

All of it on the control loop. TLS is Python's ssl, which event loops have; see
`security/server_tls.py`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from kbroker.admin.crowd import gives_way
from kbroker.limits import (
    ADMIN_CONNECTIONS_MAX,
    ADMIN_HANDSHAKE_PAUSE_S,
    ADMIN_REQUEST_TIMEOUT_S,
    TASK_RETRY_MS,
)
from kbroker.log_lines import LogLines

logger: Final = logging.getLogger("kbroker.admin")
lines: Final = LogLines(logger)

# A peer that does not take its leave, of a connection that we have ended.
_STOP_TIMEOUT_S: Final = 1

Context = Callable[[], ssl.SSLContext]
_HINTS: Final = {
    "HTTP_REQUEST": " -> the client speaks http: have it use https",
    "TLSV1_ALERT_UNKNOWN_CA": " -> have the client trust the issuer of the certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": " -> have the client trust the issuer of the certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": " -> give the client a certificate, or set"
    " listener.name.admin.ssl.client.auth",
}


class SecureSockets:
    """`start`, `stop`, each once. `make`: the protocol of a connection, once its handshake is
    over."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: Context,
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        self._sockets = sockets
        self._context = context
        self._make = make
        self._accepting: list[asyncio.Task[None]] = []
        self._opening: dict[asyncio.Task[None], socket.socket] = {}
        self._hosts: dict[asyncio.Task[None], str] = {}

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            each.setblocking(False)
            self._accepting.append(loop.create_task(self._accept(each)))

    async def stop(self) -> None:
        """No connection is accepted or opened after it; those that are open are uvicorn's."""
        for accepting in self._accepting:
            accepting.cancel()
        for connection in self._opening.values():
            _end(connection)
        await asyncio.gather(*self._accepting, *self._opening, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
                self._begin(connection, str(peer[0]))
            except Exception as error:  # no descriptors or memory; the client waits
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
                lines.write(logging.WARNING, why, "the admin port accepts no connection: %s", why)
                await asyncio.sleep(TASK_RETRY_MS / 1000)
                continue
            await asyncio.sleep(ADMIN_HANDSHAKE_PAUSE_S)

    def _begin(self, connection: socket.socket, host: str) -> None:
        if len(self._opening) >= ADMIN_CONNECTIONS_MAX:
            tasks = list(self._opening)
            _end(self._opening[gives_way(tasks, tasks, self._hosts.__getitem__)])
        task = asyncio.get_running_loop().create_task(self._open(connection, host))
        self._opening[task] = connection
        self._hosts[task] = host
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        del self._opening[task], self._hosts[task]

    async def _open(self, connection: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._make, connection, ssl=self._context(),
                ssl_handshake_timeout=ADMIN_REQUEST_TIMEOUT_S,
                ssl_shutdown_timeout=_STOP_TIMEOUT_S,
            )  # fmt: skip
        except OSError as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            lines.write(
                logging.INFO, reason, "TLS failed on the admin port, from %s: %s%s",
                host, reason, _HINTS.get(reason, ""),
            )  # fmt: skip


def _end(connection: socket.socket) -> None:
    """Its handshake fails, wherever it is; the event loop closes it then."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
