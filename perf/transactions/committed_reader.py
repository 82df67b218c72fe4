"""A consumer of committed records: one long poll after the other, on one partition."""

from __future__ import annotations

import socket
import struct
from typing import Final

from perf.cells import CellError
from perf.requests import FETCH, Topic
from perf.wire import Reader, Writer, frame, read_exactly, request_header

VERSION: Final = 4
WAIT_MS: Final = 10_000
BYTES_MAX: Final = 1 << 20
READ_COMMITTED: Final = 1


class CommittedReader:
    """From `offset` on. `ask` has a fetch in flight, `answer` takes the response to it."""

    def __init__(self, connection: socket.socket, topic: Topic, offset: int) -> None:
        self.connection = connection
        self._topic = topic
        self._offset = offset

    def ask(self) -> None:
        w = Writer().put("iiiib", -1, WAIT_MS, 1, BYTES_MAX, READ_COMMITTED)
        w.count(1).string(self._topic.name).count(1).put("iqi", 0, self._offset, BYTES_MAX)
        self.connection.sendall(frame(request_header(FETCH, VERSION), bytes(w.data)))

    def answer(self) -> int:
        """How many bytes of records came; it goes on after what is committed."""
        (size,) = struct.unpack(">i", read_exactly(self.connection, 4))
        r = Reader(read_exactly(self.connection, size))
        r.get("q")  # correlation id, throttle time
        r.count()
        r.string()
        r.count()
        r.get("i")
        if code := r.get("h"):
            raise CellError(f"Fetch: error code {code}")
        r.get("q")
        last_stable = r.get("q")
        for _ in range(r.count()):
            r.take(16)  # aborted: producer id, first offset
        received = r.count()
        if received:
            self._offset = last_stable
        return received
