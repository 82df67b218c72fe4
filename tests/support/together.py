"""Which files of tests go to one process of `make test`: those that share what is dear to begin.

A Spark session is a JVM that goes on getting quicker for minutes, and each process of a run would
warm one of its own. With two there is one for each processor of the machine that CI has.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from xdist.scheduler.loadfile import LoadFileScheduling

# Of those with the session of tests/support/spark_session.py, half by their time.
FIRST: Final = frozenset(
    ("test_stream", "test_rollup", "test_end_to_end", "test_kbroker_source", "test_kills",
     "test_sink", "test_silence")
)  # fmt: skip
# They start what they need themselves.
WITHOUT_A_SESSION: Final = frozenset(
    ("test_first_report", "test_stream_process", "test_throughput")
)


def scope_of(file: str) -> str:
    """The group of a file: its own name, or a session's."""
    path = PurePosixPath(file)
    uses_spark = path.parent.name == "spark" or path.stem == "test_spark"
    if not uses_spark or path.stem in WITHOUT_A_SESSION:
        return file
    return "Spark's first session" if path.stem in FIRST else "Spark's second session"


class Together(LoadFileScheduling):
    """pytest-xdist's `--dist loadfile`, with some files as one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(super()._split_scope(nodeid))
