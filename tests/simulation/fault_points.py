"""Faults at the steps of a transaction: the broker that takes one fails right after it.

A point is armed by an act of the schedule, for its next time. A point is a record that a leader
appends, an answer that a broker gives, whether it arrives or not, or a piece of a log that is read.
The points of share groups are the same for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

# Records of `__transaction_state`, by state; then records of partitions; then answers.
FIRST_POINTS = (
    "empty", "ongoing", "prepare", "complete",
    "data", "offsets", "marker",
    "added", "produced", "offsets committed", "ended",
)  # fmt: skip
# A piece of a coordinator's log is read; a leader knows that a partition is in its transaction.
MORE_POINTS = ("loading", "verified")
# A record of `__share_group_state`; a state was read; answers to members with records, or results.
SHARE_POINTS = ("share state", "share state read", "acquired", "acknowledged")
POINTS = FIRST_POINTS + MORE_POINTS + SHARE_POINTS
FIRST_FAULTS = ("kill", "cut_power", "alone", "pause", "fill_disk", "isolate")
MORE_FAULTS = ("fail_disk", "advance_clock")
FAULTS = FIRST_FAULTS + MORE_FAULTS


class FaultPoints:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._armed: dict[str, list[tuple[str, int, int]]] = {}
        self.happened = 0

    def arm(self, point: int, fault: int, delay_ms: int, for_ms: int) -> None:
        found = self._armed.setdefault(POINTS[point], [])
        found.append((FAULTS[fault], delay_ms, for_ms))

    def disarm(self) -> None:
        self._armed.clear()

    def happens(self, point: str, node_id: int) -> None:
        armed = self._armed.get(point)
        if armed:
            fault, delay_ms, for_ms = armed.pop(0)
            self.happened += 1
            self._cluster.loop.later(delay_ms, getattr(self._cluster, fault), node_id, for_ms)
