"""One thread that drives transactional producers: many in turn, or one that pipelines its batches.

A commit is timed from the first request of its transaction to the response to EndTxn; a wait for
its markers is part of the next one's time.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from perf.cells import CellError
from perf.transactions.producer import Producer, Steps, response
from perf.wire import Reader, WireError, read_exactly

# Between the blocks of two brokers, as between clusters that are held still by turns.
SETTLE_S: Final = 0.05
STALL_S: Final = 30.0
IN_FLIGHT: Final = 5


def connected(host: str, port: int) -> socket.socket:
    found = socket.create_connection((host, port), STALL_S)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


class Line:
    """A producer and its connection, with one request in flight."""

    def __init__(self, producer: Producer, connection: socket.socket) -> None:
        self.producer, self.connection = producer, connection
        self._received = b""
        self._frame = b""
        self._began_ns = 0
        self._steps: Steps = producer.transaction()

    def begin(self) -> None:
        self._began_ns = time.perf_counter_ns()
        self._steps = self.producer.transaction()
        self._send(next(self._steps))

    def _send(self, frame: bytes) -> None:
        self._frame = frame
        self.connection.sendall(frame)

    def on_bytes(self) -> int:
        """How long the transaction took that is over now; 0 where none is."""
        more = self.connection.recv(1 << 18)
        if not more:
            raise WireError("the other side closed the connection")
        self._received += more
        if len(self._received) < 4:
            return 0
        (size,) = struct.unpack_from(">i", self._received)
        if len(self._received) < 4 + size:
            return 0
        data, self._received = self._received[4:], b""  # one request is in flight
        try:
            self._send(self._steps.send(response(self._frame, data)))
            return 0
        except StopIteration:
            return time.perf_counter_ns() - self._began_ns


class Driven(NamedTuple):
    """Commits, by how long each took."""

    times_ns: list[int]
    wall_s: float


def commit(lines: Sequence[Line], *, seconds: float = 0.0, count: int = 0) -> Driven:
    """One transaction after the other on each line, for a time or until so many are over."""
    began = time.perf_counter()
    times_ns = in_turn(lines, seconds=seconds, count=count)
    return Driven(times_ns, time.perf_counter() - began)


class InTurn(Protocol):
    """A connection on which one thing after the other is done. `on_bytes`: how long the one took
    that is over now; 0 where none is."""

    connection: socket.socket

    def begin(self) -> None: ...
    def on_bytes(self) -> int: ...


def in_turn(lines: Sequence[InTurn], *, seconds: float = 0.0, count: int = 0) -> list[int]:
    """How long each took, in nanoseconds: for a time, or until so many are over. Those that are
    under way then are finished, and count."""
    poller = select.epoll()
    by_fd = {line.connection.fileno(): line for line in lines}
    began = time.perf_counter()
    for fd, line in by_fd.items():
        poller.register(fd, select.EPOLLIN)
        line.begin()
    under_way = len(lines)
    times_ns: list[int] = []
    while under_way:
        ready = poller.poll(STALL_S)
        if not ready:
            raise CellError(f"no response in {STALL_S:.0f} s")
        for fd, _ in ready:
            took_ns = by_fd[fd].on_bytes()
            if not took_ns:
                continue
            times_ns.append(took_ns)
            if len(times_ns) < count or time.perf_counter() - began < seconds:
                by_fd[fd].begin()
            else:
                under_way -= 1
    poller.close()
    return times_ns


class Written(NamedTuple):
    """Of one producer that pipelines."""

    batches: int
    commits: int
    wall_s: float


def pipeline(
    producer: Producer, connection: socket.socket, seconds: float, commit_every_s: float | None
) -> Written:
    """Batches with IN_FLIGHT requests in flight, all the time or in transactions of a length.

    A transaction ends when its last batch is acknowledged, as a client library does it.
    """
    began = time.perf_counter()
    ends = began + seconds
    batches = commits = 0
    while (now := time.perf_counter()) < ends:
        until = ends if commit_every_s is None else min(ends, now + commit_every_s)
        ask(connection, producer.begun())
        batches += _write(producer, connection, until)
        if commit_every_s is not None:
            ask(connection, producer.ended())
            commits += 1
    return Written(batches, commits, time.perf_counter() - began)


def fill(
    producer: Producer,
    connection: socket.socket,
    count: int,
    batches_each: int,
    aborted: Collection[int],
) -> None:
    """Transactions of so many batches; those with these numbers are aborted."""
    for number in range(count):
        ask(connection, producer.begun())
        for _ in range(batches_each):
            ask(connection, producer.written())
        ask(connection, producer.ended(committed=number not in aborted))


def ask(connection: socket.socket, steps: Steps) -> None:
    try:
        frame = next(steps)
        while True:
            connection.sendall(frame)
            frame = steps.send(answered(connection, frame))
    except StopIteration:
        return


def _write(producer: Producer, connection: socket.socket, until: float) -> int:
    """The first batch alone: what may be repeated has none after it."""
    ask(connection, producer.written())
    sent = done = 1
    frame = b""
    while True:
        if sent - done < IN_FLIGHT and time.perf_counter() < until:
            frame = producer.batch()
            connection.sendall(frame)
            sent += 1
        elif sent == done:
            return done
        else:
            if code := producer.produced(answered(connection, frame)):
                raise CellError(f"Produce: error code {code}")
            done += 1


def answered(connection: socket.socket, frame: bytes) -> Reader:
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    return response(frame, read_exactly(connection, size))
