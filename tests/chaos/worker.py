"""A consumer in a process of its own: `python -m tests.chaos.worker JSON`.

The JSON is a `Job`. SIGTERM makes it leave in order. It reads batches, "processes" them by writing
their offsets into its journal, and then commits: after each batch, or by the client's own timer
where `automatic` is set. So whatever is committed has been processed, and a crash between the two
makes a record be processed twice but never not at all.

Exit status 0: left in order; 3: fenced, because another process has its instance's name; anything
else is a mistake and has a traceback in the worker's log.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

FENCED_STATUS: Final = 3
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_500
POLL_MS: Final = 15_000  # also how long a rebalance waits for a member
BATCH_RECORDS: Final = 200
POLL_S: Final = 0.2
AUTOMATIC_MS: Final = 1_000


class Fenced(Exception):
    """Another process has taken this instance's place."""


@dataclass(frozen=True)
class Job:
    """What a worker is to do."""

    client: str
    protocol: str  # "eager" or "cooperative"
    bootstrap: str
    topic: str
    group: str
    journal: str
    client_id: str
    instance: str | None = None
    automatic: bool = False

    def text(self) -> str:
        return json.dumps(asdict(self))


def main() -> int:
    from tests.chaos import consumers
    from tests.chaos.journal import ENDED, STARTED, Journal

    job = Job(**json.loads(sys.argv[1]))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    journal = Journal(Path(job.journal))
    journal.write(STARTED, job.client, job.protocol, job.instance or "-")
    run: Any = consumers.RUN[job.client]
    try:
        run(job, journal, stop)
    except Fenced:
        return FENCED_STATUS
    journal.write(ENDED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
