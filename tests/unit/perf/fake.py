"""Brokers that a test makes up: one that only listens, one with given answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

from perf._load import Load, LoadError
from perf.spec import Run

Answer = Callable[[int, bytes], bytes | None]


class FakeBroker:
    """Accepts one connection and answers each frame with `answer(number, frame)`; None hangs up."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.frames: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, name="fake-broker")

    def __enter__(self) -> FakeBroker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            while head := connection.recv(4, socket.MSG_WAITALL):
                size = struct.unpack(">i", head)[0]
                frame = head + connection.recv(size, socket.MSG_WAITALL)
                self.frames.append(frame)
                body = self._answer(len(self.frames), frame)
                if body is None:
                    return
                # The correlation id is the third field of every request header.
                whole = frame[8:12] + body
                connection.sendall(struct.pack(">i", len(whole)) + whole)


class Recorder(FakeBroker):
    """Takes one request and hangs up."""

    def __init__(self) -> None:
        super().__init__(lambda _number, _frame: None)

    def __enter__(self) -> Recorder:
        super().__enter__()
        return self

    def frames_of(self, run: Run) -> list[bytes]:
        try:
            Load(run).go()
        except LoadError:
            pass  # "the broker closed the connection": what it sent first is what is wanted
        self._thread.join()
        return self.frames
