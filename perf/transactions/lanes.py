"""Many pieces of work over few connections: a lane has one piece at a time, one request in flight.

A piece is `Steps`, as a producer makes them: it yields a frame and is sent the response. `route`
says which broker a frame goes to; a lane keeps one connection to each.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from perf.brokers import Broker
from perf.cells import CellError
from perf.transactions.driver import STALL_S, connected
from perf.transactions.producer import Steps, response
from perf.wire import WireError

LANES: Final = 16


class Address(NamedTuple):
    """Of a broker."""

    host: str
    port: int


Route = Callable[[bytes], Address]


def to(broker: Broker) -> Route:
    """Everything to one."""
    address = Address(broker.host, broker.port)
    return lambda _frame: address


class _Lane:
    """The connections of one, and the piece that it has."""

    def __init__(self, route: Route, poller: select.epoll) -> None:
        self._route, self._poller = route, poller
        self._sockets: dict[Address, socket.socket] = {}
        self._frame = self._received = b""
        self._steps: Steps | None = None

    def take(self, steps: Steps) -> bool:
        """Whether there is anything to wait for."""
        self._steps = steps
        try:
            frame = next(steps)
        except StopIteration:
            return False
        self._send(frame)
        return True

    def _send(self, frame: bytes) -> None:
        address = self._route(frame)
        if address not in self._sockets:
            self._sockets[address] = connected(*address)
            self._poller.register(self._sockets[address], select.EPOLLIN)
        self._frame = frame
        self._sockets[address].sendall(frame)

    def fds(self) -> Iterator[int]:
        return (each.fileno() for each in self._sockets.values())

    def on_bytes(self, fd: int) -> bool:
        """Whether the piece is over."""
        (connection,) = (each for each in self._sockets.values() if each.fileno() == fd)
        more = connection.recv(1 << 18)
        if not more:
            raise WireError("the other side closed the connection")
        self._received += more
        if len(self._received) < 4:
            return False
        (size,) = struct.unpack_from(">i", self._received)
        if len(self._received) < 4 + size:
            return False
        data, self._received = self._received[4:], b""
        if self._steps is None:
            raise CellError("a response to no request")
        try:
            self._send(self._steps.send(response(self._frame, data)))
            return False
        except StopIteration:
            return True

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()


def drive(work: Iterable[Steps], route: Route, lanes: int = LANES) -> None:
    """All of it, in the order of `work`, so many pieces at a time. ClientError, CellError."""
    waiting = iter(work)
    poller = select.epoll()
    made = [_Lane(route, poller) for _ in range(lanes)]
    try:
        busy = {lane for lane in made if _next(lane, waiting)}
        while busy:
            ready = poller.poll(STALL_S)
            if not ready:
                raise CellError(f"no response in {STALL_S:.0f} s")
            by_fd = {fd: lane for lane in busy for fd in lane.fds()}
            for fd, _ in ready:
                lane = by_fd[fd]
                if lane.on_bytes(fd) and not _next(lane, waiting):
                    busy.discard(lane)
    finally:
        poller.close()
        for lane in made:
            lane.close()


def _next(lane: _Lane, waiting: Iterator[Steps]) -> bool:
    return any(lane.take(steps) for steps in waiting)
