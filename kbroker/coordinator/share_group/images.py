"""What a share group is made of, as its records have it: immutable values (KIP-932).

Each value belongs to one key of `__consumer_offsets`; a group is nothing but these values
(`state.py`). Members, epochs and targets are as those of a consumer group; but a partition may be
with many members, and none is asked to give one up. What is new are the topics whose share-
partitions have a state at the share coordinator, are to get one, or are to lose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.consumer_group.images import (
    JOINS_EPOCH,
    NO_PARTITIONS,
    GroupImage,
    Partitions,
    TargetEpoch,
)

STABLE: Final = 0  # the one state of a member
FIRST_EPOCH: Final = 1  # of a group, and of its assignment


class Kind(IntEnum):
    """The keys of a share group's records; the number is the key's version."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATE_TOPICS = 15


class MemberImage(NamedTuple):
    """What a member has said of itself."""

    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]  # sorted, each once


class CurrentImage(NamedTuple):
    """What a member has now."""

    epoch: int
    previous_epoch: int
    assigned: Partitions = NO_PARTITIONS


# Of a member without a record of it.
NEW_MEMBER: Final = CurrentImage(JOINS_EPOCH, -1)


class TopicPartitions(NamedTuple):
    """Some partitions of a topic, by its name of that time."""

    name: str
    partitions: frozenset[int]


ByTopic = Mapping[UUID, TopicPartitions]
_NONE: Final[ByTopic] = MappingProxyType({})
_NO_NAMES: Final[Mapping[UUID, str]] = MappingProxyType({})


class StateTopics(NamedTuple):
    """The topics of which share-partitions get a state, have one, and are to lose it."""

    initializing: ByTopic = _NONE
    initialized: ByTopic = _NONE
    deleting: Mapping[UUID, str] = _NO_NAMES  # topic id -> name


NO_STATE_TOPICS: Final = StateTopics()

Value = GroupImage | MemberImage | TargetEpoch | Partitions | CurrentImage | StateTopics


def more(topics: ByTopic, topic_id: UUID, name: str, partitions: frozenset[int]) -> ByTopic:
    """With these, too."""
    before = topics.get(topic_id)
    all_of_it = partitions if before is None else before.partitions | partitions
    return {**topics, topic_id: TopicPartitions(name, all_of_it)}


def fewer(topics: ByTopic, topic_id: UUID, partitions: frozenset[int] | None = None) -> ByTopic:
    """Without these; None: without the topic."""
    left = dict(topics)
    before = left.pop(topic_id, None)
    if before is not None and partitions is not None and (rest := before.partitions - partitions):
        left[topic_id] = TopicPartitions(before.name, rest)
    return left
