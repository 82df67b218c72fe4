"""Rung 3, one selector: the Reactor. One thread that waits for all sockets at once and for none.

No call here waits but `poll`. Half a request stays in the connection's inbox until the rest comes;
an answer that the socket does not take stays in its outbox until there is room, and its client is
not read meanwhile. So a slow client costs nobody anything, ten thousand idle ones cost memory only,
and all that came of one connection in one read is answered in one send.

The work is done on the selector's thread. While it is slow, nobody is served.
"""

from __future__ import annotations

import select
import socket

from perf.ladder.work import RECEIVE_BYTES, Inbox, Work, accept
from perf.wire import WireError


class Connection:
    """A socket, what has come and is not answered, and what is answered and has not left."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.inbox = Inbox()
        self.outbox = bytearray()

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


def turn(connection: Connection, events: int, work: Work) -> int | None:
    """What an event allows: read, work, answer. What to wait for next; None: it is over."""
    try:
        if events & ~select.EPOLLOUT and not connection.receive():
            return None
        while (request := connection.inbox.take()) is not None:
            connection.outbox += work.answer(request)
        return select.EPOLLIN if connection.send() else select.EPOLLOUT
    except (OSError, WireError):
        return None


def serve(listener: socket.socket, work: Work) -> None:
    """Until the process is ended."""
    connections: dict[int, Connection] = {}
    selector = select.epoll()
    selector.register(listener, select.EPOLLIN)
    while True:
        for fd, events in selector.poll():
            if fd == listener.fileno():
                if accepted := accept(listener, len(connections)):
                    connections[accepted.fileno()] = Connection(accepted)
                    selector.register(accepted, select.EPOLLIN)
            elif (next_events := turn(connections[fd], events, work)) is not None:
                selector.modify(fd, next_events)
            else:
                connections.pop(fd).socket.close()
