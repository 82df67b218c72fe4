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
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate, compress, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.group._shares import share_in_ranges, share_out, share_out_alike
from kbroker.coordinator.group._topic_numbers import TopicNumbers

UNIFORM: Final = "uniform"
RANGE: Final = "range"

_NO_OWNER: Final = -1

Assignment = dict[UUID, list[int]]  # ascending


class Subscriber(NamedTuple):
    """A member. Members that subscribe alike are quickest if `topics` is the same object; if it is
    not, it is a set, or the ids are in one order for all members."""

    member_id: str
    instance_id: str | None
    topics: Collection[UUID]
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
    """Topics and partitions by number: topics in the order of their ids, partitions through all
    topics. Those to which none of `members` subscribes have none."""

    def __init__(self, members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> None:
        topics = sorted(partition_counts, key=_number)
        collections = [member.topics for member in members]
        self._by_topic = TopicNumbers(topics)
        starts, subscribed, wanted = self._by_topic.subscriptions(collections)
        if not all(wanted):
            topics = list(compress(topics, wanted))
            self._by_topic = TopicNumbers(topics)
            starts, subscribed, _ = self._by_topic.subscriptions(collections)
        # Where each member's topics begin, and these, one member's after the other's.
        self.subscriptions: Final = (starts, subscribed)
        counts = [partition_counts[topic] for topic in topics]
        self.firsts: Final = array("i", accumulate(counts, initial=0))

    def last_owners(self, in_order: Sequence[Subscriber]) -> array[int]:
        """Of each partition, the place of the member that was to have it last."""
        return self._by_topic.last_owners([member.target for member in in_order], self.firsts)

    def assigned(self, owners: array[int], places: Sequence[int]) -> list[Assignment]:
        """What each member has, by the places of the members."""
        by_place = self._by_topic.assigned(owners, self.firsts, len(places))
        return [by_place[place] for place in places]


def _number(topic: UUID) -> int:
    return topic.int


def _uniform(
    members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> list[Assignment]:
    in_order, places = _ordered(members, lambda member: member.member_id)
    alike = _subscribe_alike(members)
    numbers = _Numbers(in_order[:1] if alike else in_order, partition_counts)
    owners = numbers.last_owners(in_order)
    if alike:
        share_out_alike(len(members), owners)
    else:
        share_out(numbers.firsts, *numbers.subscriptions, owners)
    return numbers.assigned(owners, places)


def _range(members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> list[Assignment]:
    in_order, places = _ordered(members, _place_in_range)
    numbers = _Numbers(in_order, partition_counts)
    owners = array("i", [_NO_OWNER]) * numbers.firsts[-1]
    share_in_ranges(numbers.firsts, *numbers.subscriptions, owners)
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
