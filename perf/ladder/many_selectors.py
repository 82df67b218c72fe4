"""Rung 4, many selectors and a pool: the shape of Apache Kafka's network layer, and of kbroker's.

    acceptor -> Processor (own selector) -> request queue -> handler (one of a pool)
                    ^                                            |
                    +------------- response queue <--------------+

The acceptor only accepts, and deals connections to the Processors in turn. A Processor only moves
bytes: its loop takes new connections, sends the answers that are ready, waits for its sockets, and
hands whole requests to the one bounded queue. The handlers do the work, as slow as it may be. A
connection is muted from its request to its answer: not read, one request in service, so that the
order is kept; what a client sends meanwhile waits in its socket.

Nothing waits but a selector in `poll`, a handler for the queue, and a Processor for room in it,
which is how a broker with too much work tells its clients. With one Processor this is the
document's first picture, one selector and a pool.
"""

from __future__ import annotations

import itertools
import os
import queue
import select
import socket
import threading
from dataclasses import dataclass
from typing import Final

from perf.ladder.one_selector import Connection
from perf.ladder.work import CONNECTIONS_MAX, Work, accept
from perf.wire import WireError

PROCESSORS: Final = 3  # num.network.threads
HANDLERS: Final = 8  # num.io.threads
REQUESTS_MAX: Final = 500  # queued.max.requests
NEW_CONNECTIONS_MAX: Final = 20


class MutedConnection(Connection):
    """A connection that is left alone while a request of it is in service."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self.fd = connected.fileno()
        self.muted = False


@dataclass(frozen=True)
class Request:
    """A request on its way: what it says, and whose it is."""

    data: bytes
    connection: MutedConnection
    processor: Processor


class Processor(threading.Thread):
    """One selector and its connections. Others reach it through two queues and a bell."""

    def __init__(self, requests: queue.Queue[Request], connections_max: int) -> None:
        super().__init__(daemon=True)
        self.new_connections: queue.Queue[socket.socket] = queue.Queue(NEW_CONNECTIONS_MAX)
        # One answer at most for each connection, which bounds it.
        self._responses: queue.SimpleQueue[tuple[MutedConnection, bytes | None]] = (
            queue.SimpleQueue()
        )
        self._requests = requests
        self._connections: dict[int, MutedConnection] = {}
        self._connections_max = connections_max
        self._selector = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._selector.register(self._bell, select.EPOLLIN)

    def ring(self) -> None:
        """Something is in a queue. From any thread."""
        os.eventfd_write(self._bell, 1)

    def respond(self, connection: MutedConnection, answer: bytes | None) -> None:
        """From a handler: this is the answer; None ends the connection."""
        self._responses.put((connection, answer))
        self.ring()

    def run(self) -> None:
        while True:
            for fd, events in self._selector.poll():
                if fd == self._bell:
                    os.eventfd_read(self._bell)
                    self._take_new_connections()
                    self._take_responses()
                    continue
                connection = self._connections.get(fd)  # None: the bell has just closed it
                if connection is not None and not connection.muted:
                    self._turn(connection, events)

    def _take_new_connections(self) -> None:
        while not self.new_connections.empty():
            accepted = self.new_connections.get()
            if len(self._connections) == self._connections_max:
                accepted.close()
                continue
            self._connections[accepted.fileno()] = MutedConnection(accepted)
            self._selector.register(accepted, select.EPOLLIN)

    def _take_responses(self) -> None:
        while not self._responses.empty():
            connection, answer = self._responses.get()
            connection.muted = False
            if answer is None:
                self._close(connection)
                continue
            connection.outbox += answer
            self._turn(connection, select.EPOLLOUT)

    def _turn(self, connection: MutedConnection, events: int) -> None:
        """Send what is to be sent, else read; then hand over the next request, if it is whole."""
        try:
            if events & ~select.EPOLLOUT and not connection.receive():
                self._close(connection)
                return
            if not connection.send():
                self._selector.modify(connection.fd, select.EPOLLOUT)
                return
            data = connection.inbox.take()
        except (OSError, WireError):
            self._close(connection)
            return
        if data is None:
            self._selector.modify(connection.fd, select.EPOLLIN)
            return
        connection.muted = True
        self._selector.modify(connection.fd, select.EPOLLONESHOT)  # with no event asked for
        self._requests.put(Request(data, connection, self))

    def _close(self, connection: MutedConnection) -> None:
        del self._connections[connection.fd]
        connection.socket.close()


def handle(requests: queue.Queue[Request], work: Work) -> None:
    """A handler's life."""
    while True:
        request = requests.get()
        answer: bytes | None
        try:
            answer = work.answer(request.data)
        except (OSError, WireError):
            answer = None
        request.processor.respond(request.connection, answer)


def serve(listener: socket.socket, work: Work, processors: int = PROCESSORS) -> None:
    """Until the process is ended; the calling thread is the acceptor."""
    requests: queue.Queue[Request] = queue.Queue(REQUESTS_MAX)
    pool = [Processor(requests, CONNECTIONS_MAX // processors) for _ in range(processors)]
    for processor in pool:
        processor.start()
    for _ in range(HANDLERS):
        threading.Thread(target=handle, args=(requests, work), daemon=True).start()
    for processor in itertools.cycle(pool):  # in turn
        if accepted := accept(listener):
            processor.new_connections.put(accepted)
            processor.ring()
