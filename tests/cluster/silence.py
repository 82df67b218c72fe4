"""How long a partition may acknowledge nothing because of a fault.

A partition that a fault hits may be silent as long as the fault lasts, and then as long as a
failover usually takes. One that it does not hit, since only another partition's log hangs, may be
silent for a failover at most, however long the fault lasts. The same holds for the group's commits,
and it may take the time of one rebalance more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from kbroker.types import TopicPartition
from tests.cluster.brokers import LAG_MS, SESSION_MS

# A session ends, or a follower that fetches nothing leaves the in-sync set; the rest is for the
# election, for clients to find who leads, and for a machine that has other things to do.
FAILOVER_S: Final = 2 * max(SESSION_MS, LAG_MS) / 1000
REBALANCE_S: Final = 6.0  # a member's session, see load.py


class Happened(NamedTuple):
    """A fault that is over, those within it included."""

    line: str
    lasted_s: float
    hit: Collection[TopicPartition]


class StoodStill(NamedTuple):
    """What was measured of one fault, in seconds."""

    lasted_s: float
    silent_s: float  # some partition, at most
    healthy_s: float  # some partition that was not hit
    commits_s: float  # the group's commits

    @property
    def beyond_s(self) -> float:
        """What is left of the silence when the fault's own time is taken off."""
        return self.silent_s - self.lasted_s


def measured(
    happened: Happened, silences_s: Mapping[TopicPartition, float], commits_s: float
) -> StoodStill:
    healthy_s = [silent_s for place, silent_s in silences_s.items() if place not in happened.hit]
    return StoodStill(
        happened.lasted_s, max(silences_s.values()), max(healthy_s, default=0.0), commits_s
    )


def too_long(
    happened: Happened, silences_s: Mapping[TopicPartition, float], commits_s: float
) -> list[str]:
    """What was silent for longer than it may be, in words."""
    found = []
    for place, silent_s in sorted(silences_s.items()):
        bound_s = FAILOVER_S + (happened.lasted_s if place in happened.hit else 0.0)
        if silent_s > bound_s:
            who = f"{place}" if place in happened.hit else f"{place}, which is healthy,"
            found.append(f"{who} was silent for {silent_s:.1f} s, allowed are {bound_s:.1f} s")
    bound_s = happened.lasted_s + FAILOVER_S + REBALANCE_S
    if commits_s > bound_s:
        found.append(f"commits were silent for {commits_s:.1f} s, allowed are {bound_s:.1f} s")
    return [f"{happened.line}: {text}" for text in found]
