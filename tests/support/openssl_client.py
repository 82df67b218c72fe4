"""A client of TLS that does what Python's ssl cannot: KeyUpdates and renegotiation, on demand.

OpenSSL's own functions by ctypes, over a blocking socket; nothing is verified.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import socket
from typing import Any, Final

from tests.support import requirements

_TLS_1_2: Final = 0x0303
_MAX_VERSION: Final = 124  # SSL_CTRL_SET_MAX_PROTO_VERSION
_UPDATE: Final = 0  # SSL_KEY_UPDATE_NOT_REQUESTED
_UPDATE_BOTH: Final = 1


def _library() -> Any:
    name = ctypes.util.find_library("ssl")
    if name is None:
        requirements.skip_missing("libssl", "`apt-get install libssl3` installs it")
    found = ctypes.CDLL(name)
    for each in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(found, each).restype = ctypes.c_void_p
    return found


class OpensslClient:
    """Connected, its handshake complete. `tls_1_2`: not a later version."""

    def __init__(self, port: int, *, tls_1_2: bool = False) -> None:
        self._library = _library()
        self.socket = socket.create_connection(("127.0.0.1", port))
        context = ctypes.c_void_p(
            self._library.SSL_CTX_new(ctypes.c_void_p(self._library.TLS_client_method()))
        )
        if tls_1_2:
            self._library.SSL_CTX_ctrl(context, _MAX_VERSION, ctypes.c_long(_TLS_1_2), None)
        self._ssl = ctypes.c_void_p(self._library.SSL_new(context))
        self._library.SSL_CTX_free(context)
        self._library.SSL_set_fd(self._ssl, self.socket.fileno())
        assert self._library.SSL_connect(self._ssl) == 1

    def write(self, data: bytes) -> bool:
        """Whether all of it has left."""
        return bool(self._library.SSL_write(self._ssl, data, len(data)) == len(data))

    def read(self, most: int = 1 << 14) -> bytes:
        """Empty at the end, and after a failure."""
        into = ctypes.create_string_buffer(most)
        got = self._library.SSL_read(self._ssl, into, most)
        return into.raw[:got] if got > 0 else b""

    def update_key(self, *, both: bool = False) -> bool:
        """Sends a KeyUpdate; `both`: the peer is asked for one, too."""
        self._library.SSL_key_update(self._ssl, _UPDATE_BOTH if both else _UPDATE)
        return bool(self._library.SSL_do_handshake(self._ssl) == 1)

    def renegotiate(self) -> bool:
        """Whether the peer took part."""
        self._library.SSL_renegotiate(self._ssl)
        return bool(self._library.SSL_do_handshake(self._ssl) == 1)

    def close(self) -> None:
        self._library.SSL_free(self._ssl)
        self.socket.close()
