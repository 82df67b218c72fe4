"""The assignors: balanced, sticky, co-partitioned, and the same however members are listed."""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.coordinator.group._shares import share_out
from kbroker.coordinator.group.assignors import (
    ASSIGNORS,
    RANGE,
    UNIFORM,
    Assignment,
    Subscriber,
    assign,
)
from tests.model.assignments import largest, loads, moved, topic_id

A, B, C = (topic_id(number) for number in range(3))
NOTHING: Final[Mapping[UUID, Sequence[int]]] = {}


def member(
    member_id: str,
    *topics: UUID,
    instance: str | None = None,
    has: Mapping[UUID, Sequence[int]] = NOTHING,
) -> Subscriber:
    return Subscriber(member_id, instance, frozenset(topics), has)


def keeping(members: Sequence[Subscriber], assigned: Sequence[Assignment]) -> list[Subscriber]:
    return [m._replace(target=has) for m, has in zip(members, assigned, strict=True)]


topics = st.dictionaries(st.integers(0, 5).map(topic_id), st.integers(0, 9), max_size=5)


@st.composite
def members_of(draw: st.DrawFn, sizes: Mapping[UUID, int], *, alike: bool) -> list[Subscriber]:
    """With any subscriptions, and targets of any kind: also of partitions that are gone."""
    ids = draw(st.lists(st.sampled_from("abcdefgh"), max_size=6, unique=True))
    known = [*sorted(sizes), topic_id(9)]
    subscription = st.frozensets(st.sampled_from(known))
    one = draw(subscription)
    owned = st.dictionaries(
        st.sampled_from(known), st.lists(st.integers(0, 12), unique=True), max_size=3
    )
    return [
        Subscriber(each, None, one if alike else draw(subscription), draw(owned)) for each in ids
    ]


def assert_each_partition_once(
    members: Sequence[Subscriber], sizes: Mapping[UUID, int], assigned: Sequence[Assignment]
) -> None:
    given_ = [
        (topic, number)
        for each in assigned
        for topic, numbers in each.items()
        for number in numbers
    ]
    wanted = {
        (topic, number)
        for topic, size in sizes.items()
        for number in range(size)
        if any(topic in each.topics for each in members)
    }
    assert len(given_) == len(set(given_))
    assert set(given_) == wanted
    for each, has in zip(members, assigned, strict=True):
        assert has.keys() <= set(each.topics)
        assert all(numbers == sorted(numbers) and numbers for numbers in has.values())


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("alike", [True, False])
@given(data=st.data(), sizes=topics)
@settings(deadline=None, max_examples=150)
def test_each_subscribed_partition_has_one_owner(
    assignor: str, alike: bool, data: st.DataObject, sizes: dict[UUID, int]
) -> None:
    members = data.draw(members_of(sizes, alike=alike))
    assigned = assign(assignor, members, sizes)
    assert_each_partition_once(members, sizes, assigned)
    # What was assigned is assigned again, in whatever order the members come.
    again = keeping(members, assigned)
    assert assign(assignor, again, sizes) == assigned
    assert assign(assignor, again[::-1], sizes) == assigned[::-1]


@given(data=st.data(), sizes=topics)
@settings(deadline=None, max_examples=200)
def test_uniform_alike_differs_by_one_and_moves_no_more_than_that_needs(
    data: st.DataObject, sizes: dict[UUID, int]
) -> None:
    members = data.draw(members_of(sizes, alike=True))
    before = assign(UNIFORM, members, sizes)
    for changed in (keeping(members, before)[1:], [*keeping(members, before), member("z", *sizes)]):
        if not changed or len({each.topics for each in changed}) > 1:
            continue
        assigned = assign(UNIFORM, changed, sizes)
        found = loads(assigned)
        assert max(found) - min(found) <= 1
        low, extras = divmod(sum(found), len(changed))
        had = sorted((sum(map(len, each.target.values())) for each in changed), reverse=True)
        kept = sum(min(n, low + (place < extras)) for place, n in enumerate(had))
        assert moved(changed, assigned) == sum(had) - kept


@given(data=st.data(), sizes=topics)
@settings(deadline=None, max_examples=200)
def test_uniform_leaves_no_partition_that_would_make_two_members_more_alike(
    data: st.DataObject, sizes: dict[UUID, int]
) -> None:
    members = data.draw(members_of(sizes, alike=False))
    assigned = assign(UNIFORM, members, sizes)
    found = loads(assigned)
    for place, has in enumerate(assigned):
        for topic in has:
            for other, each in enumerate(members):
                if topic in each.topics:
                    assert found[place] <= found[other] + 1, (members, assigned)


def test_two_members_and_two_equal_topics() -> None:
    """Even in all, not for each topic: as Apache Kafka 4.3 does it."""
    members = [member("m", A, B), member("n", A, B)]
    assert assign(UNIFORM, members, {A: 3, B: 3}) == [{A: [0, 1, 2]}, {B: [0, 1, 2]}]


def test_those_that_have_one_more_keep_it() -> None:
    members = [
        member("m", A, has={A: [0]}), member("n", A, has={A: [1, 2]}), member("o", A, has={}),
    ]  # fmt: skip
    assert assign(UNIFORM, members, {A: 4}) == [{A: [0]}, {A: [1, 2]}, {A: [3]}]


def test_a_topic_that_one_member_has_for_itself_counts_for_the_others() -> None:
    members = [member("m", A, B), member("n", B)]
    assert assign(UNIFORM, members, {A: 3, B: 3}) == [{A: [0, 1, 2]}, {B: [0, 1, 2]}]


def test_range_puts_pieces_of_equal_topics_together() -> None:
    members = [member(each, A, B, C) for each in "nmo"]
    assigned = assign(RANGE, members, {A: 7, B: 7, C: 2})
    assert assigned == [
        {A: [3, 4], B: [3, 4], C: [1]},
        {A: [0, 1, 2], B: [0, 1, 2], C: [0]},
        {A: [5, 6], B: [5, 6]},
    ]


def test_range_goes_by_instance_ids_first() -> None:
    """A member that comes back under its instance id has the same piece."""
    members = [member("a", A), member("z", A, instance="1"), member("y", A, instance="0")]
    before = assign(RANGE, members, {A: 3})
    assert before == [{A: [2]}, {A: [1]}, {A: [0]}]
    members[1] = member("b", A, instance="1")
    assert assign(RANGE, members, {A: 3}) == before


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_of_nothing_nothing(assignor: str) -> None:
    assert assign(assignor, [], {A: 3}) == []
    assert assign(assignor, [member("m")], {A: 3}) == [{}]
    assert assign(assignor, [member("m", A)], {}) == [{}]
    assert assign(assignor, [member("m", A), member("n", B)], {A: 0}) == [{}, {}]


def test_an_assignor_that_there_is_not() -> None:
    with pytest.raises(KeyError):
        assign("mine", [member("m", A)], {A: 1})


@pytest.mark.parametrize("alike", [True, False])
def test_the_largest_group(alike: bool) -> None:
    """1,000 members and 10,000 partitions."""
    members, sizes = largest(alike=alike)
    took_s: list[float] = []
    for _ in range(3):  # one may have a collection of the test process's garbage in it
        began = time.thread_time()
        assigned = assign(UNIFORM, members, sizes)
        took_s.append(time.thread_time() - began)
    assert min(took_s) < 0.5
    assert_each_partition_once(members, sizes, assigned)
    assert max(loads(assigned)) - min(loads(assigned)) <= 1


def subscriptions(members: int, topics: int, partitions: int) -> tuple[array[int], ...]:
    """Of members that subscribe to every topic but one."""
    firsts = array("i", range(0, (topics + 1) * partitions, partitions))
    starts, subscribed = array("i", [0]), array("i")
    for each in range(members):
        subscribed.extend(topic for topic in range(topics) if topic != each % topics)
        starts.append(len(subscribed))
    return firsts, starts, subscribed, array("i", [-1]) * firsts[-1]


def test_partitions_are_shared_out_without_the_gil() -> None:
    """Seen by a thread that gets the GIL only from one that gives it up."""
    made = subscriptions(members=2_000, topics=100, partitions=100)

    def seen() -> bool:
        begun, ended = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            share_out(*made)
            ended.set()

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        inside = not ended.is_set()
        thread.join()
        return inside

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    try:
        assert any(seen() for _ in range(50))
    finally:
        sys.setswitchinterval(interval_s)
