"""A consumer in a process of its own: `python -m tests.chaos.worker JSON`.

The JSON is a `Job`. SIGTERM makes it leave in order. It reads batches, "processes" them by writing
their offsets into its journal, and then commits: after each batch, or by the client's own timer
where `automatic` is set. So whatever is committed has been processed, and a crash between the two
makes a record be processed twice but never not at all.

Exit status 0: left in order; 3: fenced, because another process has its instance's name; 4: an
error that began in the client library, whose traceback is in the worker's log; anything else is a
mistake.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import traceback
from pathlib import Path

from tests.chaos import consumers
from tests.chaos.job import CLIENTS_OWN_STATUS, FENCED_STATUS, Fenced, Job
from tests.chaos.journal import ENDED, STARTED, Journal


def main() -> int:
    job = Job(**json.loads(sys.argv[1]))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    journal = Journal(Path(job.journal))
    journal.write(STARTED, job.client, job.protocol, job.instance or "-")
    run = consumers.RUN[job.client]
    try:
        run(job, journal, stop)
    except Fenced:
        return FENCED_STATUS
    except Exception as error:
        traceback.print_exc()
        return CLIENTS_OWN_STATUS if consumers.began_in_a_library(error) else 1
    journal.write(ENDED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
