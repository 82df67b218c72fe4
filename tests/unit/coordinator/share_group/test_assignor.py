"""The simple assignor: each partition and each member has one, and few move."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.share_group.assignor import Subscriber, assign

IDS = [UUID(int=n + 1) for n in range(4)]
counts = st.dictionaries(st.sampled_from(IDS), st.integers(1, 6), max_size=4)
topics = st.frozensets(st.sampled_from(IDS), max_size=4)


@given(counts, st.lists(topics, min_size=1, max_size=8))
def test_every_partition_and_every_member_has_one(
    partition_counts: dict[UUID, int], subscriptions: list[frozenset[UUID]]
) -> None:
    members = [Subscriber(f"m{n}", each, {}) for n, each in enumerate(subscriptions)]
    found = assign(members, partition_counts)
    given_out = Counter(
        (topic, index) for each in found.values() for topic, some in each.items() for index in some
    )
    wanted = {
        (topic, index)
        for topic, count in partition_counts.items()
        if any(topic in each for each in subscriptions)
        for index in range(count)
    }
    assert set(given_out) == wanted
    for member in members:
        mine = found[member.member_id]
        assert set(mine) <= member.topics
        assert bool(mine) == bool(member.topics & partition_counts.keys())


@given(st.integers(1, 12), st.integers(1, 12))
def test_members_that_subscribe_alike_have_about_as_many(count: int, members: int) -> None:
    alike = [Subscriber(f"m{n}", frozenset(IDS[:1]), {}) for n in range(members)]
    found = assign(alike, {IDS[0]: count})
    sizes = [len(each.get(IDS[0], ())) for each in found.values()]
    assert max(sizes) - min(sizes) <= 1
    sharers = Counter(index for each in found.values() for index in each.get(IDS[0], ()))
    assert max(sharers.values()) <= -(-members // count)


@given(st.integers(1, 12), st.integers(1, 12))
def test_an_assignment_is_kept(count: int, members: int) -> None:
    alike = [Subscriber(f"m{n}", frozenset(IDS[:1]), {}) for n in range(members)]
    first = assign(alike, {IDS[0]: count})
    again = [each._replace(target=first[each.member_id]) for each in alike]
    assert assign(again, {IDS[0]: count}) == first
