"""Samples of the transaction coordinator: its ids, its loads, and markers that wait.

A generator that is worked off in steps by the observer, some ids a step. A broker that has
coordinated nothing imports nothing of it, and has no ids of any state. Any thread; no lock is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.coordinator.runtime.loader import LoadTimes
from kbroker.observe.traffic_figures import Samples

if TYPE_CHECKING:
    from kbroker.cluster.transactions import Transactions
    from kbroker.coordinator.txn.states import State


def samples(transactions: Transactions | None) -> Iterator[Samples]:
    """None: this broker has coordinated nothing yet."""
    counts: Counter[State] = Counter()
    times, queued, later, again = LoadTimes(), 0, 0, 0
    committed = aborted = timed_out = 0
    if transactions is not None:
        coordinator = transactions.coordinator
        for _ in coordinator.count(counts):
            yield {}
        times = transactions.loader.times
        queued, later = transactions.markers.waiting
        again, ended = coordinator.completing_again, coordinator.counts
        committed, aborted, timed_out = ended.committed, ended.aborted, ended.timed_out
    yield {
        "transactional_ids": [((state.label,), counts[state]) for state in sorted(counts)],
        "transactions_committed": [((), committed)],
        "transactions_aborted": [((), aborted)],
        "transactions_timed_out": [((), timed_out)],
        "transactions_load_max": [((), times.longest_ms)],
        "transactions_load_avg": [((), times.average_ms)],
        "markers_queued": [((), queued)],
        "markers_unknown_destination": [((), later)],
        "transactions_append_retry": [((), again)],
    }
