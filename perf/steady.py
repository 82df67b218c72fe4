"""Clients that are connected already: they go on with their requests, and say how long each takes.

    python -m perf.steady PORT CERTIFICATES COUNT PERIOD_MS

Each of COUNT connections with TLS and SCRAM sends a Metadata request every PERIOD_MS, one
after the other; none waits for more than its own. Ends with its standard input, and then prints
JSON: [[when it was sent, in ns of the monotonic clock, how long it took, in ns], ...]. The first
line is "ready". A process of its own, so that another one's work does not count.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import sys
import time
from typing import Final

from perf.storm_clients import login
from perf.wire import frame, read_exactly, request_header

_METADATA: Final = frame(request_header(3, 1), struct.pack(">i", 0))


def connect(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """One that is known to the broker."""
    made = context.wrap_socket(
        socket.create_connection(("127.0.0.1", port), 60), server_hostname="127.0.0.1"
    )
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    steps = login()
    request = next(steps)
    while True:
        made.sendall(request)
        (size,) = struct.unpack(">i", read_exactly(made, 4))
        try:
            request = steps.send(read_exactly(made, size)[4:])
        except StopIteration:
            return made


def ask(connection: ssl.SSLSocket) -> int:
    """How long an answer takes, in ns."""
    began_ns = time.monotonic_ns()
    connection.sendall(_METADATA)
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    read_exactly(connection, size)
    return time.monotonic_ns() - began_ns


def main(port: int, certificates: str, count: int, period_ms: int) -> None:
    context = ssl.create_default_context(cafile=certificates)
    connections = [connect(port, context) for _ in range(count)]
    print("ready", flush=True)
    found: list[tuple[int, int]] = []
    pause_s = period_ms / 1000 / count
    due_s = time.monotonic()
    at = 0
    while True:
        due_s += pause_s
        # What is late is sent at once, and not left out: a wait is a part of the measure.
        left_s = max(0.0, due_s - time.monotonic())
        if select.select([sys.stdin], [], [], left_s)[0]:
            break
        sent_ns = round(due_s * 1e9)
        ask(connections[at % count])
        found.append((sent_ns, time.monotonic_ns() - sent_ns))
        at += 1
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
