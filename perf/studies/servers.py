"""The servers of a study: all started and warm at once, each held still but for its own turn.

A server is added under a name, by which its blocks are measured. Leaving the context ends every
process that was started in it and removes its data, whatever happened.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from perf.brokers import Broker
from perf.cells import Bench, CellError

SETTLE_AFTER_HOLD_S: Final = 0.05


class Servers:
    """Brokers by name. Use as a context manager."""

    def __init__(self, *, seconds: float, warm_s: float) -> None:
        """`seconds`, `warm_s`: of each block, and before it."""
        self._seconds, self._warm_s = seconds, warm_s
        self._benches: dict[Hashable, Bench] = {}
        self._started = ExitStack()

    def __contains__(self, name: Hashable) -> bool:
        return name in self._benches

    def __len__(self) -> int:
        return len(self._benches)

    def add(self, name: Hashable, broker: Broker) -> Bench:
        """Start a broker and hold it still."""
        self._started.callback(broker.discard)
        broker.start()
        self._benches[name] = Bench(broker, seconds=self._seconds, warm_s=self._warm_s)
        broker.hold()
        return self._benches[name]

    @contextmanager
    def turn(self, name: Hashable) -> Iterator[Bench]:
        """One server runs, the others stand still. BrokerError if it is not there any more."""
        bench = self._benches[name]
        bench.broker.resume()
        try:
            time.sleep(SETTLE_AFTER_HOLD_S)
            yield bench
        except (CellError, OSError):
            bench.broker.check_alive()
            raise
        finally:
            bench.broker.hold()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()
