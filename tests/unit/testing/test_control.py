"""The control connection: a message is received, whatever came before."""

from __future__ import annotations

import errno
import socket
import threading
from typing import cast

from kbroker.testing import control

JOIN_S = 20


class NoFileAtFirst:
    """A listener whose process has no descriptor left, and then one."""

    def __init__(self, connection: socket.socket) -> None:
        self._coming: list[OSError | socket.socket] = [
            OSError(errno.EMFILE, "Too many open files"),
            connection,
        ]

    def accept(self) -> tuple[socket.socket, object]:
        if not self._coming:
            threading.Event().wait()
        next_ = self._coming.pop(0)
        if isinstance(next_, OSError):
            raise next_
        return next_, None


def test_a_shortage_of_descriptors_ends_nothing() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(JOIN_S)
    listener = cast("socket.socket", NoFileAtFirst(theirs))
    threading.Thread(target=control._accept, args=(listener, len), daemon=True).start()
    ours.sendall(b'{"op": "x"}\n')
    assert ours.recv(100) == b'{"ok": 1}\n'
    ours.close()
