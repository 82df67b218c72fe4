"""Which brokers hold the replicas of new partitions: even leaders, followers mixed, racks apart.

Place in the flow: a pure function that `decisions.py` calls for topics and partitions without an
assignment of their own. `start` differs from call to call, so that not every topic's partition 0 is
led by the same broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


def place_replicas(
    partitions: int, replication_factor: int, racks: Mapping[int, str | None], start: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the leader first, on these brokers.

    Leaders go round the brokers from `start`; followers follow, shifted once every round so that
    the partitions of one leader do not all have the same followers. If every broker says in which
    rack it is, leaders go from rack to rack, and no rack has two replicas of a partition while
    another has none (KIP-36).
    """
    spread = None not in racks.values()
    brokers = _from_rack_to_rack(racks) if spread else sorted(racks)
    count = len(brokers)
    placed: list[tuple[int, ...]] = []
    for index in range(partitions):
        first = (start + index) % count
        others = [brokers[(first + step) % count] for step in range(1, count)]
        shift = (index // count) % max(1, len(others))
        others = others[shift:] + others[:shift]
        if spread:
            others = _other_racks_first(brokers[first], others, racks)
        placed.append((brokers[first], *others[: replication_factor - 1]))
    return placed


def _from_rack_to_rack(racks: Mapping[int, str | None]) -> list[int]:
    """One broker of each rack, then another of each, as long as there are some."""
    place: Counter[str | None] = Counter()
    ordered: list[tuple[int, str, int]] = []
    for node in sorted(racks):
        rack = racks[node]
        ordered.append((place[rack], rack or "", node))
        place[rack] += 1
    return [node for _, _, node in sorted(ordered)]


def _other_racks_first(
    leader: int, others: list[int], racks: Mapping[int, str | None]
) -> list[int]:
    """The others in their order, but in rounds of which each has every rack once at most; the
    leader's rack has had its turn in the first."""
    taken = Counter([racks[leader]])
    rounds: list[tuple[int, int]] = []
    for at, node in enumerate(others):
        rounds.append((taken[racks[node]], at))
        taken[racks[node]] += 1
    return [others[at] for _, at in sorted(rounds)]
