"""Ports for servers that a test or a benchmark starts, and starts again.

A port that the kernel chooses is one of its ephemeral ones. While its server is down, any
connection on the machine may be given it as its own end, one of the server's own clients' among
them, which then talks to itself; and two that were asked for one after the other may be the same.
Those given here are below that range. Each process of a test run has a stretch of it to itself and
counts up, so none comes again soon; another run beside it begins elsewhere in the stretch, and
every port is tried with a bind.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from typing import Final

FIRST: Final = 12_000
COUNT: Final = 18_000  # to 29,999; Linux's ephemeral ones begin at 32,768
_SPREAD: Final = 997  # a prime: neighbouring process ids begin far apart


def numbers(worker: str, workers: int, pid: int) -> Iterator[int]:
    """Of one process: the stretch of its worker (pytest-xdist's "gw2", or none), over and over."""
    length = COUNT // workers
    first = FIRST + length * int(worker.removeprefix("gw") or 0)
    stretch = itertools.cycle(range(first, first + length))
    return itertools.islice(stretch, pid * _SPREAD % length, None)


def free_port() -> int:
    """A port on which no socket listens; no other caller in this process was given it."""
    for _ in range(COUNT):
        port = next(_numbers)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise RuntimeError(f"none of {COUNT} ports is free")


_numbers: Final = numbers(
    os.environ.get("PYTEST_XDIST_WORKER", ""),
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
    os.getpid(),
)
