"""Stages of one broker of each build: the comparison's cells, the handlers' APIs, and starts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from perf.before_after import handlers
from perf.before_after.driver import BUILDS, NEW, Say
from perf.before_after.lines import (
    CPU_HALF_BAND_MAX,
    P99_HALF_BAND_MAX,
    Taken,
    of_requests,
    of_value,
)
from perf.brokers import Broker, KbrokerBroker
from perf.cells import BY_KEY, Bench
from perf.compare import SETTLE_AFTER_HOLD_S
from perf.process import settled_memory
from perf.startup import launched
from perf.warm import warm

MOST_OF_HANDLERS: Final = 1.1
START: Final = "start"
IMPORT_TIMES: Final = "PYTHONPROFILEIMPORTTIME"
IMPORTED: Final = "import time:"


class Requests:
    """Cells of requests: both brokers live, the one whose turn it is not is held still."""

    def __init__(
        self, cells: Sequence[str], root: Path, old: Path, seconds: float, say: Say
    ) -> None:
        self.lines = [
            of_requests(BY_KEY[cell].title, cell)
            if cell in BY_KEY
            else of_requests(cell, cell, MOST_OF_HANDLERS)
            for cell in cells
        ]
        self._root, self._old, self._seconds, self._say = root, old, seconds, say
        self._brokers: dict[str, Broker] = {}
        self._benches: dict[str, Bench] = {}
        self._serial = 0
        self._exit = ExitStack()

    def measure(self, cell: str, build: str, number: int) -> Taken:
        broker = self._brokers[build]
        self._serial += 1
        broker.resume()
        try:
            time.sleep(SETTLE_AFTER_HOLD_S)
            if cell in handlers.APIS:
                return handlers.measure(cell, broker, number, self._seconds, self._serial)
            block = self._benches[build].run(BY_KEY[cell])
        finally:
            broker.check_alive()
            broker.hold()
        return Taken(
            number,
            block.quiet,
            {
                "cpu_us": block.cpu_us_per_request,
                "requests_per_s": block.requests_per_s,
                "p99_us": block.percentile_us(99),
            },
        )

    def __enter__(self) -> Self:
        try:
            for build in BUILDS:
                broker = _new(build, self._root / build, self._old)
                self._exit.callback(broker.discard)
                broker.start()
                self._say(f"{build} started, pid {broker.pid}: {broker.version()}")
                cells = [line.cell for line in self.lines if line.cell in BY_KEY]
                warm(broker, cells, self._say)
                self._brokers[build] = broker
                self._benches[build] = Bench(broker, seconds=self._seconds)
                broker.hold()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()


class Starts:
    """From exec to the first acknowledged produce, what is resident then, what was imported."""

    def __init__(self, root: Path, old: Path) -> None:
        self.lines = [
            of_value("start, exec to first acknowledged, s", START, "start_s", P99_HALF_BAND_MAX),
            of_value("start, resident MB, idle", START, "resident_mb", CPU_HALF_BAND_MAX),
            of_value("start, modules imported", START, "modules", None),
        ]
        self._root, self._old = root, old
        self._serial = 0

    def measure(self, cell: str, build: str, number: int) -> Taken:
        self._serial += 1
        where = self._root / f"{cell}-{build}-{self._serial}"
        broker, noting = (
            _new(build, where, self._old),
            _Noting(where, checkout=_of(build, self._old)),
        )
        with _acknowledged(broker) as (start_s, quiet):
            resident = settled_memory(broker.pid).resident
        with _acknowledged(noting):
            noting.stop()  # all that it ever imports
            modules = noting.log_path.read_text(errors="replace").count(IMPORTED)
        values = {"start_s": start_s, "resident_mb": resident / (1 << 20), "modules": modules}
        return Taken(number, quiet, values)

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
    """In an empty directory, which is gone afterwards: seconds, and whether nothing else ran."""
    broker.directory.mkdir(parents=True, exist_ok=True)
    try:
        yield launched(broker)
    finally:
        broker.discard()


def _of(build: str, old: Path) -> Path | None:
    return None if build == NEW else old


def _new(build: str, where: Path, old: Path) -> Broker:
    return KbrokerBroker(where, checkout=_of(build, old))
