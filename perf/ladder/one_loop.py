"""Rung 1, one loop: take a request, do the work, answer, take the next.

The whole server is the loop in `serve`. Everything in it waits: for the rest of a request, for the
work, for room in the client's socket. There is nothing to lock and nothing to hand over, and for
one client with quick work nothing is faster. But there is one thread, and whatever it waits for is
waited for by everybody.

The document writes `accept(connection)` and means the next request of whoever has one. Kafka's
clients keep their connections, so epoll is asked whose turn it is; that is all it is used for here.
"""

from __future__ import annotations

import select
import socket

from perf.ladder.work import Work, accept, read_request
from perf.wire import WireError


def serve_one(connection: socket.socket, work: Work) -> bool:
    """Read one request, do it, answer it. False: the connection is at its end."""
    try:
        request = read_request(connection)
        connection.sendall(work.answer(request))
        return True
    except (OSError, WireError):
        return False


def serve(listener: socket.socket, work: Work) -> None:
    """Until the process is ended."""
    connections: dict[int, socket.socket] = {}
    turns = select.epoll()
    turns.register(listener, select.EPOLLIN)
    while True:
        for fd, _ in turns.poll():
            if fd == listener.fileno():
                if connection := accept(listener, len(connections)):
                    connections[connection.fileno()] = connection
                    turns.register(connection, select.EPOLLIN)
            elif not serve_one(connections[fd], work):
                connections.pop(fd).close()  # which takes it out of epoll, too
