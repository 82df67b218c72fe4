"""A client on a bad line: half a request, a pause, the other half; again and again.

It sends the smallest request there is (ApiVersions), so what it costs a server's other clients is
only what the server spends on waiting for it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from perf.requests import API_VERSIONS
from perf.wire import WireError, frame, read_exactly, request_header

PAUSE_S: Final = 0.02
PATIENCE_S: Final = 10.0
JOIN_S: Final = 30.0
_ASK: Final = frame(request_header(API_VERSIONS, 0), b"")
_FIRST_BYTES: Final = len(_ASK) // 2


@dataclass
class SlowClient:
    """How many answers it got, and its failure: if a server drops it, the other clients have not
    been measured beside it."""

    answers: int = 0
    failure: str = ""


@contextmanager
def slow_client(host: str, port: int) -> Iterator[SlowClient]:
    """One runs on a thread inside `with`. OSError where it cannot connect."""
    client, stop = SlowClient(), threading.Event()

    def run() -> None:
        try:
            while not stop.is_set():
                line.sendall(_ASK[:_FIRST_BYTES])
                stop.wait(PAUSE_S)
                line.sendall(_ASK[_FIRST_BYTES:])
                read_exactly(line, int.from_bytes(read_exactly(line, 4), "big"))
                client.answers += 1
        except (OSError, WireError) as error:
            client.failure = f"the slow client: {error}"

    with socket.create_connection((host, port), PATIENCE_S) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=run, name="slow-client", daemon=True)
        thread.start()
        try:
            yield client
        finally:
            stop.set()
            thread.join(JOIN_S)
