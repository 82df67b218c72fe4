"""The neighbour: an ordinary producer on its own connection while others send what they like.

It produces a batch of 1 KB every PERIOD_S in a process of its own, waits for each answer, and notes
when it was sent and how long it took. Errors and latencies per phase are the verdict on whether
hostile clients are felt by other clients.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Final

from tests.fuzz.mutate import framed
from tests.support.record_batches import build_batch

PERIOD_S: Final = 0.005
_TIMEOUT_S: Final = 30.0


class Neighbour:
    """Started with the first phase, stopped after the last."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_produce, args=(address, topic, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()  # its first record has been acknowledged
        self.samples: list[tuple[float, float]] = []  # monotonic time, latency in seconds
        self.errors: list[str] = []

    def stop(self) -> None:
        self._pipe.send(None)
        self.samples, self.errors = self._pipe.recv()
        self._process.join(_TIMEOUT_S)

    def latencies_ms(self, begin: float, end: float) -> list[float]:
        return [1000 * latency for at, latency in self.samples if begin <= at < end]


def percentile(values: Sequence[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))] if ordered else 0.0


def _produce(address: tuple[str, int], topic: str, pipe: Connection) -> None:
    samples: list[tuple[float, float]] = []
    errors: list[str] = []
    with socket.create_connection(address, timeout=_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        frame = _frame(topic)
        due = time.monotonic()
        while not pipe.poll():
            try:
                before = time.monotonic()
                connection.sendall(frame)
                (size,) = struct.unpack(">i", stream.read(4))
                code = _code(stream.read(size), topic)
            except (OSError, struct.error) as error:
                errors.append(repr(error))
                break
            samples.append((before, time.monotonic() - before))
            if code != 0:
                errors.append(f"error code {code}")
            if len(samples) == 1:
                pipe.send("produces")
            due = max(due + PERIOD_S, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
    pipe.recv()
    pipe.send((samples, errors))


def _frame(topic: str) -> bytes:
    """Produce v3, acks 1, one partition."""
    name = topic.encode()
    batch = build_batch([b"n" * 1000])
    payload = struct.pack(">hhih", 0, 3, 1, 9) + b"neighbour" + struct.pack(">hhii", -1, 1, 9000, 1)
    payload += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    return framed(payload)


def _code(payload: bytes, topic: str) -> int:
    # correlation id, topics, name, partitions, index, error code
    return int(struct.unpack_from(">h", payload, 4 + 4 + 2 + len(topic) + 4 + 4)[0])
