"""The requests of members to a share group, and its description, free of versions and bytes.

The answers to heartbeats are those of consumer groups. Immutable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.images import Partitions
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
