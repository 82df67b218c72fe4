"""The rungs of the ladder, from the lowest up. What is wrong with each is in docs/ladder.md.

1. `one_loop`: take a request, do the work, answer, take the next. Everything in it waits.
2. `thread_per_request`: what rung 1 did in its loop, on a thread for each request.
3. `one_selector`: the Reactor. No call waits but `poll`; the work is done on the same thread.
4. `many_selectors`: an acceptor, Processors with a selector each, one bounded request queue, and a
   pool of handlers: the shape of Apache Kafka's network layer, and of kbroker's.

Each `serve`s until the process is ended.
"""

from __future__ import annotations

import itertools
import os
import queue
import select
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from perf.ladder.work import CONNECTIONS_MAX, RECEIVE_BYTES, Inbox, Work, accept, read_request
from perf.wire import WireError

ONCE: Final = select.EPOLLIN | select.EPOLLONESHOT
PROCESSORS: Final = 3  # num.network.threads
HANDLERS: Final = 8  # num.io.threads
REQUESTS_MAX: Final = 500  # queued.max.requests
NEW_CONNECTIONS_MAX: Final = 20


def serve_one(connection: socket.socket, work: Work) -> bool:
    """Read one request, do it, answer it. False: the connection is at its end."""
    try:
        connection.sendall(work.answer(read_request(connection)))
        return True
    except (OSError, WireError):
        return False


def one_loop(listener: socket.socket, work: Work) -> None:
    """epoll is asked only which connection has a request: Kafka's clients keep theirs."""
    connections: dict[int, socket.socket] = {}
    ready = select.epoll()
    ready.register(listener, select.EPOLLIN)
    while True:
        for fd, _ in ready.poll():
            if fd == listener.fileno():
                if connection := accept(listener, len(connections)):
                    connections[connection.fileno()] = connection
                    ready.register(connection, select.EPOLLIN)
            elif not serve_one(connections[fd], work):
                connections.pop(fd).close()  # which takes it out of epoll, too


def thread_per_request(listener: socket.socket, work: Work) -> None:
    """A connection is looked at once (EPOLLONESHOT) and again when its answer has been sent, so
    answers keep their order, and there are at most as many threads as connections."""
    connections: dict[int, socket.socket] = {}
    ready = select.epoll()
    ready.register(listener, select.EPOLLIN)

    def one_request(fd: int) -> None:
        connection = connections[fd]
        if serve_one(connection, work):
            ready.modify(fd, ONCE)
        else:
            del connections[fd]  # before close: the number may be another's right after it
            connection.close()

    while True:
        for fd, _ in ready.poll():
            if fd == listener.fileno():
                if connection := accept(listener, len(connections)):
                    connections[connection.fileno()] = connection
                    ready.register(connection, ONCE)
            else:
                threading.Thread(target=one_request, args=(fd,), daemon=True).start()


class Connection:
    """A socket, what has come and is not answered, and what is answered and has not left."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.fd = connected.fileno()
        self.inbox = Inbox()
        self.outbox = bytearray()
        self.muted = False  # of rung 4: left alone while a request of it is in service

    def receive(self) -> bool:
        """Take what has come. False at the end."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return True
        self.inbox.put(data)
        return bool(data)

    def send(self) -> bool:
        """Send what the socket takes. True if nothing is left."""
        while self.outbox:
            try:
                del self.outbox[: self.socket.send(self.outbox)]
            except BlockingIOError:
                return False
        return True


def _turn(connection: Connection, events: int, work: Work) -> int | None:
    """Read, work, answer. What to wait for next; None: the connection is at its end."""
    try:
        if events & ~select.EPOLLOUT and not connection.receive():
            return None
        while (request := connection.inbox.take()) is not None:
            connection.outbox += work.answer(request)
        return select.EPOLLIN if connection.send() else select.EPOLLOUT
    except (OSError, WireError):
        return None


def one_selector(listener: socket.socket, work: Work) -> None:
    """Half a request stays in the inbox; what the socket does not take stays in the outbox, and its
    client is not read meanwhile. What came in one read is answered in one send."""
    connections: dict[int, Connection] = {}
    selector = select.epoll()
    selector.register(listener, select.EPOLLIN)
    while True:
        for fd, events in selector.poll():
            if fd == listener.fileno():
                if accepted := accept(listener, len(connections)):
                    connections[accepted.fileno()] = Connection(accepted)
                    selector.register(accepted, select.EPOLLIN)
            elif (next_events := _turn(connections[fd], events, work)) is not None:
                selector.modify(fd, next_events)
            else:
                connections.pop(fd).socket.close()


class Request(NamedTuple):
    """A request on its way: what it says, and whose it is."""

    data: bytes
    connection: Connection
    processor: Processor


class Processor(threading.Thread):
    """One selector and its connections, which only moves bytes. Others reach it through two queues
    and a bell. A connection is not read from its request to its answer, which keeps the order."""

    def __init__(self, requests: queue.Queue[Request], connections_max: int) -> None:
        super().__init__(daemon=True)
        self.new_connections: queue.Queue[socket.socket] = queue.Queue(NEW_CONNECTIONS_MAX)
        # One answer at most for each connection, which bounds it.
        self._responses: queue.SimpleQueue[tuple[Connection, bytes | None]] = queue.SimpleQueue()
        self._requests = requests
        self._connections: dict[int, Connection] = {}
        self._connections_max = connections_max
        self._selector = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._selector.register(self._bell, select.EPOLLIN)

    def ring(self) -> None:
        """Something is in a queue. From any thread."""
        os.eventfd_write(self._bell, 1)

    def respond(self, connection: Connection, answer: bytes | None) -> None:
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
            self._connections[accepted.fileno()] = Connection(accepted)
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

    def _turn(self, connection: Connection, events: int) -> None:
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

    def _close(self, connection: Connection) -> None:
        del self._connections[connection.fd]
        connection.socket.close()


def _handle(requests: queue.Queue[Request], work: Work) -> None:
    """The life of a handler."""
    while True:
        request = requests.get()
        answer: bytes | None
        try:
            answer = work.answer(request.data)
        except (OSError, WireError):
            answer = None
        request.processor.respond(request.connection, answer)


def many_selectors(listener: socket.socket, work: Work, processors: int = PROCESSORS) -> None:
    """The calling thread is the acceptor: it deals connections to the Processors in turn. With one
    Processor this is one selector and a pool."""
    requests: queue.Queue[Request] = queue.Queue(REQUESTS_MAX)
    pool = [Processor(requests, CONNECTIONS_MAX // processors) for _ in range(processors)]
    for processor in pool:
        processor.start()
    for _ in range(HANDLERS):
        threading.Thread(target=_handle, args=(requests, work), daemon=True).start()
    for processor in itertools.cycle(pool):
        if accepted := accept(listener):
            processor.new_connections.put(accepted)
            processor.ring()


SERVERS: Final[Mapping[str, Callable[[socket.socket, Work], None]]] = {
    "loop": one_loop,
    "threads": thread_per_request,
    "selector": one_selector,
    "pool": partial(many_selectors, processors=1),
    "selectors": many_selectors,
}
