"""The stage of starts: to the first acknowledged produce, what is resident then, what was imported.

Each start has an empty directory, which is gone afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from perf.before_after.driver import NEW
from perf.before_after.lines import CPU_HALF_BAND_MAX, P99_HALF_BAND_MAX, Taken, of_value
from perf.brokers import Broker, KbrokerBroker
from perf.process import settled_memory
from perf.startup import launched

START: Final = "start"
MIB: Final = 1 << 20
IMPORT_TIMES: Final = "PYTHONPROFILEIMPORTTIME"
IMPORTED: Final = "import time:"


class Started(NamedTuple):
    """Of one build. `modules`: all that it imported until it had stopped."""

    start_s: float
    resident_bytes: int
    modules: frozenset[str]
    quiet: bool


class Starts:
    """See the head of this file."""

    def __init__(self, root: Path, old: Path) -> None:
        self.lines = [
            of_value("start, exec to first acknowledged, s", START, "start_s", P99_HALF_BAND_MAX),
            of_value("start, resident MB, idle", START, "resident_mb", CPU_HALF_BAND_MAX),
            of_value("start, modules imported", START, "modules", None),
        ]
        self._root, self._old = root, old
        self._serial = 0

    def start(self, build: str) -> Started:
        """Twice, since noting what is imported takes time."""
        self._serial += 1
        where = self._root / f"{START}-{build}-{self._serial}"
        checkout = None if build == NEW else self._old
        broker, noting = (kind(where, checkout=checkout) for kind in (KbrokerBroker, _Noting))
        with _acknowledged(broker) as (start_s, quiet):
            resident = settled_memory(broker.pid).resident
        with _acknowledged(noting):
            noting.stop()
            lines = noting.log_path.read_text(errors="replace").splitlines()
        imported = (line.rpartition("|")[2].strip() for line in lines if line.startswith(IMPORTED))
        return Started(start_s, resident, frozenset(imported), quiet)

    def measure(self, cell: str, build: str, number: int) -> Taken:
        one = self.start(build)
        values = {
            "start_s": one.start_s,
            "resident_mb": one.resident_bytes / MIB,
            "modules": len(one.modules),
        }
        return Taken(number, one.quiet, values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class _Noting(KbrokerBroker):
    """A broker that writes a line into its log for each module that it imports."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), IMPORT_TIMES: "1"}


@contextmanager
def _acknowledged(broker: Broker) -> Iterator[tuple[float, bool]]:
    """Seconds, and whether nothing else ran."""
    broker.directory.mkdir(parents=True, exist_ok=True)
    try:
        yield launched(broker)
    finally:
        broker.discard()
