"""What a consumer group is made of, as its records have it: immutable values, and changes of them.

Each value belongs to one key of `__consumer_offsets`; a group is nothing but these values
(`state.py`). So a change is a key with its new value, or with None where the key is removed, and
the reverse of a change is the value before.

Source: KIP-848; KIP-1251 for the epochs of single partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.consumer_group.states import MemberState

# Topic id -> partitions.
Partitions = Mapping[UUID, frozenset[int]]
# Topic id -> partition -> the member's epoch in which it got the partition.
PartitionEpochs = Mapping[UUID, Mapping[int, int]]

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})
NO_EPOCHS: Final[PartitionEpochs] = MappingProxyType({})

# In a request: of a member that joins, that leaves, and of a static one that is to come back.
JOINS_EPOCH: Final = 0
LEAVES_EPOCH: Final = -1
LEAVES_FOR_NOW_EPOCH: Final = -2


class Kind(IntEnum):
    """The keys of a consumer group's records; the number is the key's version."""

    GROUP = 3
    TOPICS = 4  # of Apache Kafka before 4.1; read and removed, never written
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    PATTERN = 16


class GroupImage(NamedTuple):
    epoch: int
    metadata_hash: int


class ClassicMember(NamedTuple):
    """What a member that joined by the classic protocol has besides."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberImage(NamedTuple):
    """What a member has said of itself. `pattern` is "" where there is none."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]  # sorted, each once
    pattern: str
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMember | None = None


class TargetEpoch(NamedTuple):
    epoch: int
    timestamp_ms: int  # wall clock, when it was computed


class CurrentImage(NamedTuple):
    """What a member has now. `revoking` are partitions that it is to give up first."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: PartitionEpochs = NO_EPOCHS
    revoking: PartitionEpochs = NO_EPOCHS


# Of a member without a record of it.
NEW_MEMBER: Final = CurrentImage(JOINS_EPOCH, -1, MemberState.STABLE)


class PatternImage(NamedTuple):
    """The topics that a regular expression matched."""

    topics: tuple[str, ...]  # sorted
    version: int  # of the metadata
    timestamp_ms: int


Value = GroupImage | MemberImage | TargetEpoch | Partitions | CurrentImage | PatternImage


class Change(NamedTuple):
    """`key`: a member's id, a pattern, or "" where the group has one value. None: it is removed."""

    kind: Kind
    key: str
    value: Value | None


def partitions_of(epochs: PartitionEpochs) -> dict[UUID, frozenset[int]]:
    return {topic_id: frozenset(some) for topic_id, some in epochs.items() if some}
