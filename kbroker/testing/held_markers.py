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
    from kbroker.cluster.transactions import Results
    from kbroker.protocol.messages import write_txn_markers

Held = tuple["Sequence[write_txn_markers.Marker]", "Callable[[Results], None]"]


class HeldMarkers(TransactionsOnDemand):
    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._holding = threading.Lock()
        self._holds = False
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

    def let_go(self) -> int:
        """What was held is written, in its order, and nothing is held any more; how many."""
        with self._holding:
            self._holds = False
            held, self._held = self._held, []
        for markers, done in held:
            super().write_markers(markers, done)
        return sum(len(markers) for markers, _ in held)
