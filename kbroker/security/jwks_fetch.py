"""The bytes of a set of keys, out of a file or from a server.

A server is asked over HTTP or HTTPS, once: a redirection is an error, since it could lead away from
the addresses that are allowed, and proxies of the environment are not used. The certificate is
checked against the authorities of the machine (`SSL_CERT_FILE`). What is sent is bounded in bytes;
how long it takes is bounded by `interrupt`, which any thread may call: it ends the connection.

Blocks, so it belongs on a thread of its own. `JwksError` says in one line what went wrong.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from kbroker.limits import JWKS_BYTES_MAX

FILE: Final = "file"
_TIMEOUT_S: Final = 10.0
_OK: Final = 200


class JwksError(Exception):
    """There is no set of keys."""


class JwksFetch:
    """One attempt."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        self._interrupted = False

    def read(self) -> bytes:
        """JwksError, also after `interrupt`."""
        try:
            if self._url.scheme == FILE:
                return _bounded(_read_file(self._url))
            return _bounded(self._ask())
        except (OSError, HTTPException, ValueError) as error:
            why = "it takes too long" if self._interrupted else str(error) or type(error).__name__
            raise JwksError(why) from None

    def interrupt(self) -> None:
        """End it, if it is not over: what it waits for fails."""
        with self._lock:
            self._interrupted = True
            connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> bytes:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            from ssl import create_default_context

            made: HTTPConnection = HTTPSConnection(
                host, port, timeout=_TIMEOUT_S, context=create_default_context()
            )
        else:
            made = HTTPConnection(host, port, timeout=_TIMEOUT_S)
        with self._lock:
            if self._interrupted:
                raise JwksError("it takes too long")
            self._connection = made
        try:
            path = self._url.path or "/"
            query = f"?{self._url.query}" if self._url.query else ""
            headers = {"Accept": "application/json", "Connection": "close"}
            made.request("GET", path + query, headers=headers)
            response = made.getresponse()
            if response.status != _OK:
                raise JwksError(f"it answers {response.status}")
            return response.read(JWKS_BYTES_MAX + 1)
        finally:
            made.close()


def _read_file(url: SplitResult) -> bytes:
    with open(unquote(url.path), "rb") as file:
        return file.read(JWKS_BYTES_MAX + 1)


def _bounded(data: bytes) -> bytes:
    if len(data) > JWKS_BYTES_MAX:
        raise JwksError(f"it has more than {JWKS_BYTES_MAX} bytes")
    return data
