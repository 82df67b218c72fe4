"""What the groups of this broker are doing: members, states, committed offsets and lag.

A generator that is worked off in steps by the observer, a group a step, so that a scrape of
thousands of groups delays no request. Lag is the high watermark less the committed offset; it is
known where the partition's log is, which on one broker is everywhere; of a topic with a partition
that is not here no lag is given, since 0 would be no news and no lag either. All other sums are
always given; series by partition end at GROUP_SERIES_MAX, with the groups that come first by name,
because a hundred thousand of them would cost a scrape more than they are worth.

Any thread that may take some milliseconds; no lock is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.group.states import GroupState
from kbroker.metrics.model import Sample
from kbroker.outside_text import label
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.coordinator.groups import Groups
    from kbroker.replica._replica import Replica

GROUP_SERIES_MAX: Final = 20_000
_STATES: Final = {
    GroupState.EMPTY: "groups_empty",
    GroupState.PREPARING_REBALANCE: "groups_preparing",
    GroupState.COMPLETING_REBALANCE: "groups_completing",
    GroupState.STABLE: "groups_stable",
    GroupState.DEAD: "groups_dead",
}


def samples(
    groups: Groups, replicas: Mapping[TopicPartition, Replica]
) -> Iterator[dict[str, list[Sample]]]:
    """Pieces of the figures; those of offsets come whole, with the last piece."""
    counts = groups.coordinator.counts()
    yield {
        "groups": [((), sum(counts.values()))],
        **{key: [((), counts[state])] for state, key in _STATES.items()},
        "group_members": [
            ((label(group_id),), members)
            for group_id, members in sorted(groups.coordinator.member_counts().items())
        ],
        "groups_refused": [
            ((bound,), count) for bound, count in groups.coordinator.refused.counts().items()
        ],
        "offsets_expired": [((), groups.expiration.expired_offsets)],
    }
    found = _Offsets()
    table = groups.table
    named = [name for index in range(table.partition_count) for name in table.groups(index)]
    for group_id in sorted(named):
        sums: dict[str, tuple[int, int | None]] = {}
        for each in table.offsets(group_id):
            replica = replicas.get(TopicPartition(each.topic, each.partition))
            lag = None if replica is None else max(0, replica.high_watermark - each.offset)
            found.add(group_id, each.topic, str(each.partition), each.offset, lag)
            offsets, lags = sums.get(each.topic, (0, 0))
            lags = None if lag is None or lags is None else lags + lag
            sums[each.topic] = offsets + each.offset, lags
        found.add_sums(group_id, sums)
        yield {}
    yield found.rows()


class _Offsets:
    """Series of committed offsets and lag, as they are gathered."""

    def __init__(self) -> None:
        self._count = 0
        self._current: list[Sample] = []
        self._lag: list[Sample] = []
        self._current_sums: list[Sample] = []
        self._lag_sums: list[Sample] = []

    def add(self, group_id: str, topic: str, partition: str, offset: int, lag: int | None) -> None:
        self._count += 1
        if self._count > GROUP_SERIES_MAX:
            return
        labels = (label(group_id), topic, partition)
        self._current.append((labels, offset))
        if lag is not None:
            self._lag.append((labels, lag))

    def add_sums(self, group_id: str, sums: Mapping[str, tuple[int, int | None]]) -> None:
        group = label(group_id)
        for topic, (offset, lag) in sums.items():
            self._current_sums.append(((group, topic), offset))
            if lag is not None:
                self._lag_sums.append(((group, topic), lag))

    def rows(self) -> dict[str, list[Sample]]:
        return {
            "offsets": [((), self._count)],
            "group_offset": self._current,
            "group_lag": self._lag,
            "group_offset_sum": self._current_sums,
            "group_lag_sum": self._lag_sums,
        }
