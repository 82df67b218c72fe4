"""Samples of share state: this broker's as a coordinator, and its questions to coordinators.

A broker that no share group uses imports nothing of it, and has zeros. Any thread; no lock is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kbroker.coordinator.runtime.loader import LoadTimes
from kbroker.observe.traffic_figures import Samples

if TYPE_CHECKING:
    from kbroker.cluster.share_state import ShareStates


class OfShareGroups(Protocol):
    """`ShareGroupsOnDemand`."""

    @property
    def made(self) -> ShareStates | None: ...

    @property
    def waiting(self) -> int:
        """Questions that are not answered."""
        ...


def samples(share: OfShareGroups | None) -> Samples:
    """None: there are no share groups."""
    made = None if share is None else share.made
    times, states = LoadTimes(), 0
    records = refused = unwritten = 0
    if made is not None:
        times, states = made.loader.times, made.coordinator.state_count()
        records, refused, unwritten = made.coordinator.counts
    return {
        "share_states": [((), states)],
        "share_state_records": [((), records)],
        "share_state_refused": [((), refused)],
        "share_state_unwritten": [((), unwritten)],
        "share_state_load_max": [((), times.longest_ms)],
        "share_state_load_avg": [((), times.average_ms)],
        "share_state_waiting": [((), 0 if share is None else share.waiting)],
    }
