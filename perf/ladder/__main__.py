"""One rung as a process: `python -m perf.ladder DESIGN PORT DIRECTORY`; SIGTERM ends it."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from perf.ladder import BY_NAME, many_selectors, one_loop, one_selector, thread_per_request
from perf.ladder.work import Work

BACKLOG = 1024
SWITCH_INTERVAL_S = 0.0005  # kbroker's: who waits for the interpreter waits this long at most
SERVERS: dict[str, Callable[[socket.socket, Work], None]] = {
    "loop": one_loop.serve,
    "threads": thread_per_request.serve,
    "selector": one_selector.serve,
    "pool": partial(many_selectors.serve, processors=1),
    "selectors": many_selectors.serve,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.ladder", description=__doc__)
    parser.add_argument("design", choices=tuple(BY_NAME))
    parser.add_argument("port", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fsync", action="store_true", help="answer when it is on the disk")
    asked = parser.parse_args(arguments)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = socket.create_server(("127.0.0.1", asked.port), backlog=BACKLOG)
    SERVERS[asked.design](listener, Work(asked.directory, fsync=asked.fsync))


if __name__ == "__main__":
    main()
