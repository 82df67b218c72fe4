"""Rung 2, a thread for each request: the loop only sees that somebody wants something.

The thread does what rung 1 did in its loop: read the request, do the work, answer; then it ends.
So slow work and a slow client cost the others nothing. The price is a thread for each request,
made, scheduled and ended, for work that may take less time than that.

A connection is asked about once (EPOLLONESHOT) and again when its answer has been sent, so one
request of a connection is in service at a time and answers keep their order. It also bounds the
threads by the connections.
"""

from __future__ import annotations

import select
import socket
import threading

from perf.ladder.one_loop import serve_one
from perf.ladder.work import Work, accept

ONCE = select.EPOLLIN | select.EPOLLONESHOT


def serve(listener: socket.socket, work: Work) -> None:
    """Until the process is ended."""
    connections: dict[int, socket.socket] = {}
    turns = select.epoll()
    turns.register(listener, select.EPOLLIN)

    def one_request(fd: int) -> None:
        connection = connections[fd]
        if serve_one(connection, work):
            turns.modify(fd, ONCE)  # now it may be asked about again
        else:
            del connections[fd]  # before close: the number may be another's right after it
            connection.close()

    while True:
        for fd, _ in turns.poll():
            if fd == listener.fileno():
                if connection := accept(listener, len(connections)):
                    connections[connection.fileno()] = connection
                    turns.register(connection, ONCE)
            else:
                threading.Thread(target=one_request, args=(fd,), daemon=True).start()
