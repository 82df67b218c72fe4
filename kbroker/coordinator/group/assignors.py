"""The assignors of the consumer protocol: which member is to have which partitions (KIP-848).

`assign` is a pure function of the members, what they subscribe to and were to have last, and of the
numbers of partitions. Any thread may call it; most of its time is spent without the GIL.

`uniform`: all members have as many partitions, or one more, as far as their subscriptions allow it,
and few partitions move (`_shares.pyx`). `range`: each topic is cut into one piece for each of its
subscribers, in the order of the members, so that the pieces of topics with as many partitions and
the same subscribers fall together. Members are in the order of their instance ids, then of the ids
of those without one; so a member that comes back under its instance id has the same piece.

Neither looks at racks, as in Apache Kafka 4.3. Where two members have an equal right to a
partition, Apache Kafka's choice depends on the order of a hash table, and ours does not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from kbroker.coordinator.group._shares import share_in_ranges, share_out, share_out_alike

UNIFORM: Final = "uniform"
RANGE: Final = "range"

_NO_OWNER: Final = -1

Assignment = dict[UUID, list[int]]  # ascending


class Subscriber(NamedTuple):
    """A member. Members that subscribe alike are quickest if `topics` is the same object."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    # What it was to have last: partitions by topic.
    target: Mapping[UUID, Collection[int]]


def assign(
    assignor: str, members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> list[Assignment]:
    """What each member is to have, in the order of `members`.

    Topics without a number of partitions do not exist. KeyError: there is no such assignor.
    """
    made = ASSIGNORS[assignor]
    return made(members, partition_counts) if members else []


class _Numbers:
    """Topics and partitions by number: topics by id, partitions through all topics.

    An id is compared by its object first: a UUID is slow to hash, and members that subscribe to a
    topic mostly have the image's object of it.
    """

    def __init__(self, members: Iterable[Subscriber], partition_counts: Mapping[UUID, int]) -> None:
        wanted: set[UUID] = set()
        last: frozenset[UUID] | None = None
        for member in members:
            if member.topics is not last:
                last = member.topics
                wanted |= last
        self.topics: Final = sorted(wanted & partition_counts.keys(), key=_number)
        self.counts: Final = [partition_counts[topic] for topic in self.topics]
        self.firsts: Final = array("i", accumulate(self.counts, initial=0))
        self._by_id: Final = {topic: number for number, topic in enumerate(self.topics)}
        # Objects that live as long as the members do.
        self._by_object: Final[dict[int, int]] = {}

    def _of(self, topics: Collection[UUID]) -> list[int]:
        """NO_OWNER for one that does not exist, or has no subscriber."""
        found = list(map(self._by_object.get, map(id, topics)))
        if None in found:
            for topic in topics:
                if id(topic) not in self._by_object:
                    self._by_object[id(topic)] = self._by_id.get(topic, _NO_OWNER)
            found = list(map(self._by_object.get, map(id, topics)))
        return cast("list[int]", found)

    def last_owners(self, in_order: Iterable[Subscriber]) -> array[int]:
        """Of each partition, the place of the member that was to have it last."""
        owners = array("i", [_NO_OWNER]) * self.firsts[-1]
        for place, member in enumerate(in_order):
            target = member.target
            for number, partitions in zip(self._of(target.keys()), target.values(), strict=True):
                if number != _NO_OWNER:
                    first, count = self.firsts[number], self.counts[number]
                    for partition in partitions:
                        if partition < count:
                            owners[first + partition] = place
        return owners

    def subscriptions(self, in_order: Iterable[Subscriber]) -> tuple[array[int], array[int]]:
        """Where each member's topics begin, and these, one member's after the other's."""
        known: dict[int, array[int]] = {}
        starts, subscribed = array("i", [0]), array("i")
        for member in in_order:
            numbers = known.get(id(member.topics))
            if numbers is None:
                found = sorted(self._of(member.topics))
                numbers = array("i", found[bisect_left(found, 0) :])
                known[id(member.topics)] = numbers
            subscribed.extend(numbers)
            starts.append(len(subscribed))
        return starts, subscribed

    def assigned(self, owners: Sequence[int], places: Sequence[int]) -> list[Assignment]:
        """What each member has, by the places of the members."""
        by_place: list[Assignment] = [{} for _ in places]
        for number, topic in enumerate(self.topics):
            first = self.firsts[number]
            here: dict[int, list[int]] = {}
            for partition, place in enumerate(owners[first : self.firsts[number + 1]]):
                if place in here:
                    here[place].append(partition)
                elif place != _NO_OWNER:
                    here[place] = by_place[place][topic] = [partition]
        return [by_place[place] for place in places]


def _number(topic: UUID) -> int:
    return topic.int


def _uniform(
    members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> list[Assignment]:
    in_order, places = _ordered(members, lambda member: member.member_id)
    numbers = _Numbers(in_order, partition_counts)
    owners = numbers.last_owners(in_order)
    if _subscribe_alike(members):
        share_out_alike(len(members), owners)
    else:
        share_out(numbers.firsts, *numbers.subscriptions(in_order), owners)
    return numbers.assigned(owners, places)


def _range(members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> list[Assignment]:
    in_order, places = _ordered(members, _place_in_range)
    numbers = _Numbers(in_order, partition_counts)
    owners = array("i", [_NO_OWNER]) * numbers.firsts[-1]
    share_in_ranges(numbers.firsts, *numbers.subscriptions(in_order), owners)
    return numbers.assigned(owners, places)


def _ordered(
    members: Sequence[Subscriber], place: Callable[[Subscriber], Any]
) -> tuple[list[Subscriber], list[int]]:
    """The members in their order, and where each of them is in it."""
    order = sorted(range(len(members)), key=lambda each: place(members[each]))
    places = [0] * len(members)
    for at, each in enumerate(order):
        places[each] = at
    return [members[each] for each in order], places


def _place_in_range(member: Subscriber) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member.member_id
    return False, member.instance_id


def _subscribe_alike(members: Sequence[Subscriber]) -> bool:
    return all(
        one.topics is other.topics or one.topics == other.topics for one, other in pairwise(members)
    )


ASSIGNORS: Final[
    Mapping[str, Callable[[Sequence[Subscriber], Mapping[UUID, int]], list[Assignment]]]
] = MappingProxyType({UNIFORM: _uniform, RANGE: _range})
