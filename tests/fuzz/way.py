"""How the fuzzer's connections come to the broker: by which listener, and how far.

`plain` needs nothing. By `ssl`, `sasl_plaintext` and `sasl_ssl` a connection is opened whole first:
the handshake of TLS, then a login with PLAIN; what follows are frames as on any other connection.
A stranger does less: it sends frames to a listener that expects a login, or a handshake. Nearly
each of them ends its connection.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Final, NamedTuple

from kbroker.testing.plain import PlainBroker
from kbroker.testing.secured import INSIDE, SECURE, Secured, Wanted
from lab.ports import free_port
from tests.fuzz.mutate import framed

HOST: Final = "127.0.0.1"
USER: Final = ("fuzz", "pw")
# By the name of a listener's protocol: whether it speaks TLS, and whether it wants a login.
LISTENERS: Final = {
    "plain": (False, False), "ssl": (True, False), "sasl_plaintext": (False, True),
    "sasl_ssl": (True, True),
}  # fmt: skip
_RESET: Final = struct.pack("ii", 1, 0)
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


class Way(NamedTuple):
    """`authority`: the certificate to trust, empty: without TLS. `stranger`: a listener that wants
    more than this is not content, and ends connections at any frame."""

    authority: str = ""
    user: tuple[str, str] | None = None
    stranger: bool = False

    def connect(self, address: tuple[str, int], timeout_s: float) -> socket.socket:
        """A connection that blocks, and that ends by a reset. OSError: it was not opened."""
        opened = socket.create_connection(address, timeout=timeout_s)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Ended by a reset always: nothing stays in TIME_WAIT.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            if self.authority:
                opened = _context(self.authority).wrap_socket(opened, server_hostname="localhost")
            if self.user is not None:
                _log_in(opened, *self.user)
        except BaseException:
            opened.close()
            raise
        return opened

    def short_of(self) -> list[Way]:
        """The strangers of this listener."""
        found = [Way(self.authority, stranger=True)] if self.user is not None else []
        return [*found, Way(stranger=True)] if self.authority else found


_contexts: dict[str, ssl.SSLContext] = {}


def _context(authority: str) -> ssl.SSLContext:
    if authority not in _contexts:
        _contexts[authority] = ssl.create_default_context(cafile=authority)
    return _contexts[authority]


def _log_in(opened: socket.socket, name: str, password: str) -> None:
    token = b"\0" + name.encode() + b"\0" + password.encode()
    _ask(opened, _SASL_HANDSHAKE, struct.pack(">h", 5) + b"PLAIN")
    _ask(opened, _SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token)


def _ask(opened: socket.socket, api_key: int, body: bytes) -> None:
    opened.sendall(framed(struct.pack(">hhih", api_key, 1, 1, -1) + body))
    (size,) = struct.unpack(">i", _exactly(opened, 4))
    answer = _exactly(opened, size)
    if answer[4:6] != b"\0\0":
        raise ConnectionError(f"not let in: {answer!r}")


def _exactly(opened: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        some = opened.recv(size - len(data))
        if not some:
            raise ConnectionError("closed while it was opened")
        data += some
    return data


class FuzzedBroker(PlainBroker):
    """A broker whose first listener is of this kind. `address`: of one that needs nothing."""

    def __init__(self, listener: str, overrides: dict[str, object]) -> None:
        super().__init__(overrides)
        has_tls, has_users = LISTENERS[listener]
        wanted = Wanted(dict([USER]) if has_users else {}, has_tls, None)
        self._secured = Secured(wanted, self.scratch_dir) if wanted.is_any else None
        self._inside = free_port()
        self._outside = free_port()
        if self._secured is not None:
            names = f"{SECURE}://{HOST}:{self._outside},{INSIDE}://{HOST}:{self._inside}"
            self.overrides = {**self._secured.settings(), **self.overrides, "listeners": names}

    def prepare(self) -> None:
        super().prepare()
        if self._secured is not None:
            self._secured.prepare(self.data_dir)

    @property
    def address(self) -> tuple[str, int]:
        if self._secured is not None:
            return HOST, self._inside
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    @property
    def fuzzed_address(self) -> tuple[str, int]:
        return (HOST, self._outside) if self._secured is not None else self.address

    @property
    def way(self) -> Way:
        if self._secured is None:
            return Way()
        authority = str(self._secured.authority_path) if self._secured.has_tls else ""
        return Way(authority, USER if self._secured.users else None)
