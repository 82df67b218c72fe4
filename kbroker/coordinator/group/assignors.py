"""The assignors of the consumer protocol: which member is to have which partitions (KIP-848).

`assign` is a pure function of the members, what they subscribe to and were to have last, and of the
numbers of partitions. Any thread may call it; most of its time is spent without the GIL.

`uniform`: all members have as many partitions, or one more, as far as their subscriptions allow it,
and few partitions move (`_uniform.pyx`). `range`: each topic is cut into one piece for each of its
subscribers, in the order of the members, so that the pieces of topics with as many partitions and
the same subscribers fall together. Members are in the order of their instance ids, then of the ids
of those without one; so a member that comes back under its instance id has the same piece.

Neither looks at racks, as in Apache Kafka 4.3. Where two members have an equal right to a
partition, Apache Kafka's choice depends on the order of a hash table, and ours does not.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.group._uniform import share_out, share_out_alike

UNIFORM: Final = "uniform"
RANGE: Final = "range"

_NOBODY: Final = -1

Assignment = dict[UUID, list[int]]  # ascending


class Subscriber(NamedTuple):
    """A member. Members that subscribe alike are quickest if `topics` is the same object."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    # What it was to have last: partitions by topic.
    target: Mapping[UUID, Sequence[int]]


def assign(
    assignor: str, members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> list[Assignment]:
    """What each member is to have, in the order of `members`.

    Topics without a number of partitions do not exist. KeyError: there is no such assignor.
    """
    return ASSIGNORS[assignor](members, partition_counts)


def _uniform(
    members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> list[Assignment]:
    if not members:
        return []
    in_order = sorted(range(len(members)), key=lambda each: members[each].member_id)
    topics = _topics_of(members, partition_counts)
    firsts = array("i", [0])
    for topic in topics:
        firsts.append(firsts[-1] + partition_counts[topic])
    owners = _last_owners(members, in_order, dict(zip(topics, firsts, strict=False)), firsts[-1],
                          partition_counts)  # fmt: skip
    if _subscribe_alike(members):
        share_out_alike(len(members), owners)
    else:
        share_out(firsts, *_subscriptions(members, in_order, topics), owners)
    return _owned(topics, firsts, owners, in_order)


def _topics_of(
    members: Iterable[Subscriber], partition_counts: Mapping[UUID, int]
) -> list[UUID]:
    """Those that exist and have a subscriber, by id."""
    found: set[UUID] = set()
    last: frozenset[UUID] | None = None
    for member in members:
        if member.topics is not last:
            last = member.topics
            found |= last
    return sorted(found & partition_counts.keys(), key=_number)


def _number(topic: UUID) -> int:
    return topic.int


def _subscribe_alike(members: Sequence[Subscriber]) -> bool:
    first = members[0].topics
    return all(member.topics is first or member.topics == first for member in members)


def _last_owners(
    members: Sequence[Subscriber],
    in_order: Sequence[int],
    first_of: Mapping[UUID, int],
    count: int,
    partition_counts: Mapping[UUID, int],
) -> array[int]:
    """Of each partition, the place of its owner in the order."""
    owners = array("i", [_NOBODY]) * count
    for place, each in enumerate(in_order):
        for topic, partitions in members[each].target.items():
            first = first_of.get(topic)
            if first is not None:
                here = partition_counts[topic]
                for partition in partitions:
                    if partition < here:
                        owners[first + partition] = place
    return owners


def _subscriptions(
    members: Sequence[Subscriber], in_order: Sequence[int], topics: Sequence[UUID]
) -> tuple[array[int], array[int]]:
    """The members' topics by number, one member's after the other's, and where each begins."""
    number_of = {topic: number for number, topic in enumerate(topics)}
    known: dict[frozenset[UUID], array[int]] = {}
    starts, subscribed = array("i", [0]), array("i")
    for each in in_order:
        asked = members[each].topics
        numbers = known.get(asked)
        if numbers is None:
            found = sorted(number_of[topic] for topic in asked if topic in number_of)
            numbers = known[asked] = array("i", found)
        subscribed.extend(numbers)
        starts.append(len(subscribed))
    return starts, subscribed


def _owned(
    topics: Sequence[UUID], firsts: Sequence[int], owners: Sequence[int], in_order: Sequence[int]
) -> list[Assignment]:
    found: list[Assignment] = [{} for _ in in_order]
    by_place = [found[each] for each in in_order]
    for number, topic in enumerate(topics):
        first = firsts[number]
        for each in range(first, firsts[number + 1]):
            if owners[each] != _NOBODY:
                by_place[owners[each]].setdefault(topic, []).append(each - first)
    return found


def _range(members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> list[Assignment]:
    found: list[Assignment] = [{} for _ in members]
    subscribers: dict[UUID, list[Assignment]] = {}
    for each in sorted(range(len(members)), key=lambda each: _place_in_range(members[each])):
        for topic in members[each].topics:
            if topic in partition_counts:
                subscribers.setdefault(topic, []).append(found[each])
    for topic in sorted(subscribers, key=_number):
        asked = subscribers[topic]
        low, extras = divmod(partition_counts[topic], len(asked))
        first = 0
        for place, assignment in enumerate(asked):
            end = first + low + (place < extras)
            if end == first:
                break
            assignment[topic] = list(range(first, end))
            first = end
    return found


def _place_in_range(member: Subscriber) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member.member_id
    return False, member.instance_id


ASSIGNORS: Final[
    Mapping[str, Callable[[Sequence[Subscriber], Mapping[UUID, int]], list[Assignment]]]
] = MappingProxyType({UNIFORM: _uniform, RANGE: _range})
