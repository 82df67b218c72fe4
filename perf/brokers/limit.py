"""The limit server as a process of its own: `python -m perf.brokers.limit PORT DIRECTORY`.

Its code is perf/native/perf_limit.h. The port is bound here; SIGTERM ends it.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from perf.brokers.base import Broker

ROOT = Path(__file__).resolve().parents[2]
BACKLOG = 1024


class LimitBroker(Broker):
    """The least that a produce or a fetch can cost here."""

    name = "limit"
    is_limit = True

    def command(self) -> list[str]:
        return [sys.executable, "-m", "perf.brokers.limit", str(self.port), str(self.directory)]

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": path}


def main(port: int, directory: str) -> None:
    from perf._load import serve_limit

    listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    serve_limit(listener.fileno(), directory)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
