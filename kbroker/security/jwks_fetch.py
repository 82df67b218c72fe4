"""The bytes of a set of keys, out of a file or from a server.

A server is asked over HTTP or HTTPS, once: a redirection is an error, since it could lead away from
the addresses that are allowed, and proxies of the environment are not used. The certificate is
checked against the authorities of the machine (`SSL_CERT_FILE`), or those of `context`. What is
sent is bounded in bytes; how long it takes is bounded by `interrupt`, which any thread may call: it
ends the connection, or one that is being made as soon as it is made, which takes _TIMEOUT_S for
each address of the server.

Blocks, so it belongs on a thread of its own. `JwksError` says in one line what went wrong.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, unquote, urlsplit

from kbroker.errors import ConfigError
from kbroker.limits import JWKS_BYTES_MAX

if TYPE_CHECKING:
    from ssl import SSLContext

FILE: Final = "file"
_TIMEOUT_S: Final = 10.0
_OK: Final = 200
_LATE: Final = "it takes too long"


class JwksError(Exception):
    """There is no set of keys."""


class JwksFetch:
    """One attempt. `context`: of HTTPS, made when it is needed; it may raise a ConfigError."""

    def __init__(self, url: str, context: Callable[[], SSLContext] | None = None) -> None:
        self._context = context
        self._url = urlsplit(url)
        self._lock = threading.Lock()
        self._connected: socket.socket | None = None
        self._interrupted = False

    def read(self) -> bytes:
        """JwksError, also after `interrupt`."""
        try:
            data = _read_file(self._url) if self._url.scheme == FILE else self._ask()
        except ConfigError as error:
            raise JwksError(error.message) from None
        except (OSError, HTTPException, ValueError) as error:
            why = _LATE if self._interrupted else str(error) or type(error).__name__
            raise JwksError(why) from None
        if len(data) > JWKS_BYTES_MAX:
            raise JwksError(f"it has more than {JWKS_BYTES_MAX} bytes")
        return data

    def interrupt(self) -> None:
        """End it, if it is not over: what it waits for fails."""
        with self._lock:
            self._interrupted = True
            connected = self._connected
        if connected is not None:
            with suppress(OSError):
                # Not that of a socket of TLS, which would be read without TLS afterwards.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def _ask(self) -> bytes:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            from ssl import create_default_context

            context = (self._context or create_default_context)()
            made: HTTPConnection = HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
        else:
            made = HTTPConnection(host, port, timeout=_TIMEOUT_S)
        try:
            made.connect()
            with self._lock:
                if self._interrupted:
                    raise JwksError(_LATE)
                self._connected = made.sock  # `made` has it no more when the headers are read
            path = self._url.path or "/"
            query = f"?{self._url.query}" if self._url.query else ""
            headers = {"Accept": "application/json", "Connection": "close"}
            made.request("GET", path + query, headers=headers)
            with made.getresponse() as response:
                if response.status != _OK:
                    raise JwksError(f"it answers {response.status}")
                data = response.read(JWKS_BYTES_MAX + 1)
            if self._interrupted:  # it may end where the connection was ended
                raise JwksError(_LATE)
            return data
        finally:
            made.close()


def _read_file(url: SplitResult) -> bytes:
    """A pipe is not waited for: it may be opened, and is then refused."""
    with open(unquote(url.path), "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise JwksError("it is no regular file")
        return file.read(JWKS_BYTES_MAX + 1)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
