"""Markers of transactions that a test holds back: decided, and not in the partitions yet.

What this broker's coordinator writes to this broker's partitions is held here; markers to other
brokers are requests, which `Broker.on(ApiKey.WRITE_TXN_MARKERS, ...)` meets there. The coordinator
sees a write that takes long. Any thread; the lock, a leaf, is held for a list only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kbroker.server.transactions import Given, TransactionsOnDemand

if TYPE_CHECKING:
    from kbroker.cluster.transactions import Results, Transactions
    from kbroker.engine._hot import HotPath
    from kbroker.protocol.messages import write_txn_markers

Held = tuple["Sequence[write_txn_markers.Marker]", "Callable[[Results], None]"]


class HeldMarkers(TransactionsOnDemand):
    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._holding = threading.Lock()
        self._holds = False
        self._shift_ms = 0
        self._held: list[Held] = []

    def write_markers(
        self, markers: Sequence[write_txn_markers.Marker], done: Callable[[Results], None]
    ) -> None:
        with self._holding:
            if self._holds:
                self._held.append((markers, done))
                return
        super().write_markers(markers, done)

    @property
    def held(self) -> int:
        """How many wait."""
        with self._holding:
            return sum(len(markers) for markers, _ in self._held)

    def hold(self) -> None:
        with self._holding:
            self._holds = True
        self._serve_in_c(False)

    def _serve_in_c(self, serves: bool) -> None:
        """What C writes is not held."""
        if self._in_c is not None:
            self._in_c.serve(serves)

    def _make_hot(self, made: Transactions, hot: HotPath) -> None:
        made.table.set_clock_shift_ms(self._shift_ms)
        super()._make_hot(made, hot)
        self._serve_in_c(not self._holds)

    def shift_clock(self, shift_ms: int) -> None:
        """Beside the machine's, for the steps in C."""
        self._shift_ms = shift_ms
        if self._made is not None:
            self._made.table.set_clock_shift_ms(shift_ms)

    def let_go(self) -> int:
        """What was held is written, in its order, and nothing is held any more; how many."""
        with self._holding:
            self._holds = False
            held, self._held = self._held, []
        self._serve_in_c(True)
        for markers, done in held:
            super().write_markers(markers, done)
        return sum(len(markers) for markers, _ in held)
