"""The assignor of share groups, `simple`: which member is to have which partitions (KIP-932).

A partition may be with many members. Every partition that some member subscribes to is with one at
least, and every member has one at least where it subscribes to any. Where there are more members
than partitions, each partition is with about as many of them; else each is with one member, and all
have about as many. A member keeps its last target as far as that allows it.

Members that subscribe alike are looked at together, and the one with the fewest partitions is the
head of a heap: the time is about that of the partitions, of the members and of their last targets.
Where all subscribe otherwise each topic with partitions that are free costs a look at each member.
A thousand members with 200,000 partitions of 2,000 topics take a second or two.

A pure function; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final, NamedTuple
from uuid import UUID

SIMPLE: Final = "simple"

Place = tuple[UUID, int]


class Subscriber(NamedTuple):
    member_id: str
    topics: frozenset[UUID]
    target: Mapping[UUID, Collection[int]]  # what it was to have last


def assign(
    members: Sequence[Subscriber], partitions: Mapping[UUID, Collection[int]]
) -> dict[str, dict[UUID, frozenset[int]]]:
    """By member. `partitions`: those that may be given. Others do not exist, or have no state."""
    alike: dict[frozenset[UUID], list[int]] = {}
    for at, each in enumerate(members):
        alike.setdefault(each.topics, []).append(at)
    subscribed = frozenset[UUID]().union(*alike)
    topics = sorted(subscribed & partitions.keys(), key=lambda id_: id_.bytes)
    # Places and members are numbers from here on, in their order.
    places = [(topic, index) for topic in topics for index in sorted(partitions[topic])]
    numbers: dict[UUID, dict[int, int]] = {topic: {} for topic in topics}
    for number, (topic, index) in enumerate(places):
        numbers[topic][index] = number
    # How many members a partition is with, and how many partitions a member has, at most.
    shared = max(1, -(-len(members) // max(1, len(places))))
    most = max(1, -(-len(places) * shared // max(1, len(members))))
    owned: list[list[int]] = [[] for _ in members]
    sharers = [0] * len(places)

    def give(at: int, number: int) -> None:
        owned[at].append(number)
        sharers[number] += 1

    for at, member in enumerate(members):
        for number in _last(member, numbers):
            if len(owned[at]) < most and sharers[number] < shared:
                give(at, number)
    _give_what_is_free(alike, numbers, owned, sharers, give)
    for subscribed_to, some in alike.items():
        idle = [at for at in some if not owned[at]]
        if not idle:
            continue
        able_numbers = [
            n for topic in topics if topic in subscribed_to for n in numbers[topic].values()
        ]
        if able_numbers:
            least = _heap([sharers[n] for n in able_numbers], able_numbers)
            for at in idle:
                give(at, _least(least, sharers.__getitem__)[1])
    return {
        member.member_id: _by_topic(some, places)
        for member, some in zip(members, owned, strict=True)
    }


def _give_what_is_free(
    alike: Mapping[frozenset[UUID], Sequence[int]],
    numbers: Mapping[UUID, Mapping[int, int]],
    owned: Sequence[Collection[int]],
    sharers: Sequence[int],
    give: Callable[[int, int], None],
) -> None:
    """Each partition without a member to the one with the fewest among those that subscribe."""

    def count_of(at: int) -> int:
        return len(owned[at])

    heaps = [_heap([count_of(at) for at in some], some) for some in alike.values()]
    first = [_least(heap, count_of) for heap in heaps]  # of those that subscribe alike
    for topic, in_topic in numbers.items():
        free = [number for number in in_topic.values() if not sharers[number]]
        if not free:
            continue
        able = [(*first[k], k) for k, subscribed_to in enumerate(alike) if topic in subscribed_to]
        heapify(able)
        for number in free:
            _, at, k = able[0]
            give(at, number)
            first[k] = _least(heaps[k], count_of)
            heapreplace(able, (*first[k], k))


_Heap = list[tuple[int, int]]  # of a count, and what has it


def _heap(counts: Sequence[int], of: Sequence[int]) -> _Heap:
    heap = list(zip(counts, of, strict=True))
    heapify(heap)
    return heap


def _least(heap: _Heap, count_of: Callable[[int], int]) -> tuple[int, int]:
    """The first of those with the lowest count. Counts in the heap may be too low."""
    while (count := count_of(heap[0][1])) != heap[0][0]:
        heapreplace(heap, (count, heap[0][1]))
    return heap[0]


def _last(member: Subscriber, numbers: Mapping[UUID, Mapping[int, int]]) -> Iterator[int]:
    """What it had and may have."""
    for topic, some in sorted(member.target.items(), key=lambda each: each[0].bytes):
        known = numbers.get(topic)
        if known is not None and topic in member.topics:
            yield from (known[index] for index in sorted(some) if index in known)


def _by_topic(numbers: Sequence[int], places: Sequence[Place]) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, set[int]] = {}
    for number in numbers:
        topic, index = places[number]
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(some) for topic, some in found.items()}
