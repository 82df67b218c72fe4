"""One rung as a process: `python -m perf.ladder DESIGN PORT DIRECTORY`; SIGTERM ends it."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

from perf.ladder.servers import SERVERS
from perf.ladder.work import Work

BACKLOG = 1024
SWITCH_INTERVAL_S = 0.0005  # kbroker's: a thread waits for the interpreter for this long at most


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.ladder", description=__doc__)
    parser.add_argument("design", choices=tuple(SERVERS))
    parser.add_argument("port", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fsync", action="store_true", help="answer when it is on the disk")
    given = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = socket.create_server(("127.0.0.1", given.port), backlog=BACKLOG)
    SERVERS[given.design](listener, Work(given.directory, fsync=given.fsync))


if __name__ == "__main__":
    main()
