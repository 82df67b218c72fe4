"""The simple assignor: each partition and each member has one, and few move."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.share_group import assignor
from kbroker.coordinator.share_group.assignor import Subscriber, assign

IDS = [UUID(int=n + 1) for n in range(4)]
partitions_of = st.dictionaries(
    st.sampled_from(IDS), st.frozensets(st.integers(0, 8), min_size=1, max_size=6), max_size=4
)
topics = st.frozensets(st.sampled_from(IDS), max_size=4)


@given(partitions_of, st.lists(topics, min_size=1, max_size=8))
def test_every_partition_and_every_member_has_one(
    partitions: dict[UUID, frozenset[int]], subscriptions: list[frozenset[UUID]]
) -> None:
    members = [Subscriber(f"m{n}", each, {}) for n, each in enumerate(subscriptions)]
    found = assign(members, partitions)
    given_out = Counter(
        (topic, index) for each in found.values() for topic, some in each.items() for index in some
    )
    wanted = {
        (topic, index)
        for topic, some in partitions.items()
        if any(topic in each for each in subscriptions)
        for index in some
    }
    assert set(given_out) == wanted
    for member in members:
        mine = found[member.member_id]
        assert set(mine) <= member.topics
        assert bool(mine) == bool(member.topics & partitions.keys())


@given(st.integers(1, 12), st.integers(1, 12))
def test_members_that_subscribe_alike_have_about_as_many(count: int, members: int) -> None:
    alike = [Subscriber(f"m{n}", frozenset(IDS[:1]), {}) for n in range(members)]
    found = assign(alike, {IDS[0]: range(count)})
    sizes = [len(each.get(IDS[0], ())) for each in found.values()]
    assert max(sizes) - min(sizes) <= 1
    sharers = Counter(index for each in found.values() for index in each.get(IDS[0], ()))
    assert max(sharers.values()) <= -(-members // count)


@given(st.integers(1, 12), st.integers(1, 12))
def test_an_assignment_is_kept(count: int, members: int) -> None:
    alike = [Subscriber(f"m{n}", frozenset(IDS[:1]), {}) for n in range(members)]
    first = assign(alike, {IDS[0]: range(count)})
    again = [each._replace(target=first[each.member_id]) for each in alike]
    assert assign(again, {IDS[0]: range(count)}) == first


class Counting(frozenset[UUID]):
    """Counts how often it is looked at."""

    looks = 0

    def __contains__(self, topic: object) -> bool:
        Counting.looks += 1
        return super().__contains__(topic)


def test_the_work_is_not_members_times_partitions() -> None:
    alike = Counting(IDS[:2])
    members = [Subscriber(f"m{n}", alike, {}) for n in range(100)]
    partitions = {IDS[0]: range(1_000), IDS[1]: range(5)}
    found = assign(members, partitions)
    again = [each._replace(target=found[each.member_id]) for each in members]
    assert assign(again, partitions) == found
    idle = [Subscriber("a", alike, {}), *(Subscriber(f"b{n}", alike, {}) for n in range(2_000))]
    assert all(assign(idle, {IDS[0]: range(30)}).values())
    assert Counting.looks < 500


def test_members_that_subscribe_otherwise_cost_no_more_for_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def counted(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return least(*given)

    least = assignor._least
    monkeypatch.setattr(assignor, "_least", counted)
    names = [UUID(int=n + 1) for n in range(50)]
    members = [Subscriber(f"m{n}", frozenset(names) - {each}, {}) for n, each in enumerate(names)]
    found = assign(members, dict.fromkeys(names, range(20)))
    assert sum(len(some) for each in found.values() for some in each.values()) == 1_000
    assert looks < 1_100
