"""A client on a bad line: half a request, a pause, the other half; again and again.

It asks for next to nothing (ApiVersions), so what it costs a server's other clients is only what
the server spends on waiting for it. One thread, from `with` to its end; what went wrong with it, if
anything, is in `failure` afterwards: a server that drops it has not been measured beside it.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Final

from perf.requests import API_VERSIONS
from perf.wire import WireError, frame, read_exactly, request_header

PAUSE_S: Final = 0.02
PATIENCE_S: Final = 10.0
JOIN_S: Final = 30.0
_ASK: Final = frame(request_header(API_VERSIONS, 0), b"")
_FIRST_BYTES: Final = len(_ASK) // 2


class SlowClient:
    """Runs inside `with`. `answers` counts what it got."""

    def __init__(self, host: str, port: int) -> None:
        self.answers = 0
        self.failure = ""
        self._stop = threading.Event()
        self._socket = socket.create_connection((host, port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._thread = threading.Thread(target=self._run, name="slow-client", daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._socket.sendall(_ASK[:_FIRST_BYTES])
                self._stop.wait(PAUSE_S)
                self._socket.sendall(_ASK[_FIRST_BYTES:])
                read_exactly(self._socket, int.from_bytes(read_exactly(self._socket, 4), "big"))
                self.answers += 1
        except (OSError, WireError) as error:
            self.failure = f"the slow client: {error}"

    def __enter__(self) -> SlowClient:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(JOIN_S)
        self._socket.close()
