"""The control connection between a test and its broker: a Unix socket, a line of JSON each way.

The broker's side is one thread that serves one connection after the other; a line is an order with
its arguments ("op" names it), the answer {"ok": ...} or {"error": "..."}. The test's side opens the
socket when it has something to say and keeps it. Lines are bounded; who sends more is let go.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

LINE_BYTES_MAX: Final = 1 << 20
ANSWER_BYTES_MAX: Final = 256 << 20
ANSWER_TIMEOUT_S: Final = 60.0
ACCEPT_PAUSE_S: Final = 0.1

logger: Final = logging.getLogger("kbroker.testing")

Control = Callable[[dict[str, Any]], Any]


def serve(path: Path, control: Control) -> None:
    """Listens at `path` and serves it on a daemon thread; the socket's file is the caller's."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short(path) as name:
        listener.bind(name)
    listener.listen(8)
    threading.Thread(
        target=_accept, args=(listener, control), name="kbroker-testing", daemon=True
    ).start()


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """The same place by a short name: a socket's may have 107 bytes, whatever TMPDIR has."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _accept(listener: socket.socket, control: Control) -> None:
    pause = threading.Event()  # which is never set
    while True:
        try:
            connection, _ = listener.accept()
            threading.Thread(
                target=_serve_one, args=(connection, control), name="kbroker-testing", daemon=True
            ).start()
        except (OSError, RuntimeError) as error:  # no file or no thread left, for now
            logger.warning("an order of a test cannot be taken yet: %s", error)
            pause.wait(ACCEPT_PAUSE_S)


def _serve_one(connection: socket.socket, control: Control) -> None:
    with connection, connection.makefile("rb") as lines:
        while line := lines.readline(LINE_BYTES_MAX):
            try:
                answer = {"ok": control(json.loads(line))}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            try:
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                return


class ControlClient:
    """The test's side. One order at a time; any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def __call__(self, asked: dict[str, Any]) -> Any:
        with self._lock:
            answer = self._ask(json.dumps(asked).encode() + b"\n")
        if "error" in answer:
            raise RuntimeError(f"the broker under test refuses: {answer['error']}")
        return answer["ok"]

    def close(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()

    def _ask(self, line: bytes) -> Any:
        opened = self._socket
        try:
            if opened is None:
                opened = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                opened.settimeout(ANSWER_TIMEOUT_S)
                with _short(self._path) as name:
                    opened.connect(name)
            opened.sendall(line)
            with opened.makefile("rb") as lines:
                answered = lines.readline(ANSWER_BYTES_MAX)
            return json.loads(answered)
        except (OSError, ValueError) as error:
            self.close()
            raise RuntimeError(f"the broker under test does not answer: {error}") from error
