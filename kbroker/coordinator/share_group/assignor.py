"""The assignor of share groups, `simple`: which member is to have which partitions (KIP-932).

A partition may be with many members. Every partition that some member subscribes to is with one at
least, and every member has one at least where it subscribes to any. Where there are more members
than partitions, each partition is with about as many of them; else each is with one member, and all
have about as many. A member keeps its last target as far as that allows it.

A pure function; any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

SIMPLE: Final = "simple"

Place = tuple[UUID, int]


class Subscriber(NamedTuple):
    member_id: str
    topics: frozenset[UUID]
    target: Mapping[UUID, Collection[int]]  # what it was to have last


def assign(
    members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]
) -> dict[str, dict[UUID, frozenset[int]]]:
    """By member. Topics without a number of partitions do not exist."""
    subscribers = Counter(topic for each in members for topic in each.topics)
    places = [
        (topic, index)
        for topic in sorted(subscribers.keys() & partition_counts.keys(), key=lambda id_: id_.bytes)
        for index in range(partition_counts[topic])
    ]
    # How many members a partition is with, and how many partitions a member has, at most.
    shared = max(1, -(-len(members) // max(1, len(places))))
    most = max(1, -(-len(places) * shared // max(1, len(members))))
    owned: dict[str, set[Place]] = {each.member_id: set() for each in members}
    sharers: Counter[Place] = Counter()
    known = set(places)

    def give(member: Subscriber, place: Place) -> None:
        owned[member.member_id].add(place)
        sharers[place] += 1

    for member in members:
        for place in _last(member):
            is_possible = place in known and place[0] in member.topics
            has_room = len(owned[member.member_id]) < most and sharers[place] < shared
            if is_possible and has_room:
                give(member, place)
    for place in places:
        if not sharers[place]:
            able = [each for each in members if place[0] in each.topics]
            give(min(able, key=lambda each: len(owned[each.member_id])), place)
    for member in members:
        able_places = [place for place in places if place[0] in member.topics]
        if not owned[member.member_id] and able_places:
            give(member, min(able_places, key=lambda place: sharers[place]))
    return {member_id: _by_topic(some) for member_id, some in owned.items()}


def _last(member: Subscriber) -> Iterator[Place]:
    for topic, some in sorted(member.target.items(), key=lambda each: each[0].bytes):
        for index in sorted(some):
            yield topic, index


def _by_topic(places: set[Place]) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, set[int]] = {}
    for topic, index in places:
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(some) for topic, some in found.items()}
