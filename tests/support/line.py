"""A line between a client and its server that a test can cut, mend, or make deaf in one direction.

    with Line(server.connect) as line:
        client = connect_to(line.address)
        line.swallow_answers()      # requests are done, and not answered
        line.cut()                  # connections end, new ones are refused
        line.mend()

Two threads for each connection, which end with it; all of them are joined at the end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

_PIECE_BYTES = 65_536


class Line:
    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._up = True
        self._answers = True
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def swallow_answers(self) -> None:
        self._answers = False

    def cut(self) -> None:
        with self._lock:
            self._up = False
            for end in self._ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._ends.clear()

    def mend(self) -> None:
        with self._lock:
            self._up = self._answers = True

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return  # the end
            with self._lock:
                if not self._up:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._ends += [near, far]
                for source, sink, answers in ((near, far, False), (far, near, True)):
                    thread = threading.Thread(target=self._carry, args=(source, sink, answers))
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if self._answers or not answers:
                    sink.sendall(piece)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        source.close()
