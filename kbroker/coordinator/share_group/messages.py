"""The requests to a share group, and its answers, free of versions and bytes.

The answers to heartbeats are those of consumer groups. Immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.images import Partitions
    from kbroker.coordinator.share.images import SharePartition
    from kbroker.coordinator.share.seams import Outcome
    from kbroker.coordinator.share_group.images import ByTopic
    from kbroker.coordinator.share_group.state import ShareGroupLabel


class HeartbeatAsked(NamedTuple):
    """A ShareGroupHeartbeat. None: as before."""

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None  # sorted, each once
    client_id: str = ""
    client_host: str = ""


class DescribedMember(NamedTuple):
    member_id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assigned: Partitions


class Description(NamedTuple):
    """A group as ShareGroupDescribe has it."""

    group_id: str
    state: ShareGroupLabel
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedMember, ...]


class AlterAsked(NamedTuple):
    """Share-partitions of topics that exist, and where the group is to begin to read them."""

    group_id: str
    topics: ByTopic
    starts: Mapping[SharePartition, int]


class Altered(NamedTuple):
    """`outcomes` has each share-partition, where there is no code."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    outcomes: Mapping[SharePartition, Outcome] = MappingProxyType({})


class OffsetsDeleted(NamedTuple):
    """`codes` has each topic of which there were states, where there is no code."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    codes: Mapping[UUID, ErrorCode] = MappingProxyType({})
