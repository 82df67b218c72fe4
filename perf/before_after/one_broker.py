"""The stage of one broker of each build: the comparison's cells and the handlers' APIs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from perf.before_after import handlers
from perf.before_after.driver import BUILDS, NEW, Say
from perf.before_after.lines import Taken, of_requests
from perf.brokers import Broker, KbrokerBroker
from perf.cells import BY_KEY, Bench
from perf.compare import SETTLE_AFTER_HOLD_S
from perf.warm import warm

MOST_OF_HANDLERS: Final = 1.1


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


def _new(build: str, where: Path, old: Path) -> Broker:
    return KbrokerBroker(where, checkout=None if build == NEW else old)
