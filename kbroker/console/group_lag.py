"""How far groups lag: their offsets beside the ends of the logs, partition by partition.

The lag is the number of offsets between the two, as for `kbroker group describe`; a share group's
is what its coordinator counts. Owner: the console's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.findings.pieces import in_order
from kbroker.peer import messages
from kbroker.peer.messages import LATEST_TIMESTAMP
from kbroker.peer.share_group_messages import UNKNOWN
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.peer.group_descriptions import GroupDescription, GroupMember
    from kbroker.peer.groups import Groups
    from kbroker.types import TopicPartition


NO_ENDS: Final = "the leaders of some partitions give no answer, or there is none"


class PartitionLag(NamedTuple):
    """None: not known. `position`: committed, or where a share group begins."""

    position: int | None
    end: int | None
    lag: int | None
    member: GroupMember | None
    readers: int  # members that have the partition
    metadata: str = ""

    @property
    def is_unknown(self) -> bool:
        """It has a position, and the log's end is not known."""
        return self.position is not None and self.lag is None


def log_ends(asked: Asked, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those that the visitor may describe and whose leader answers; each is asked once."""
    if not wanted:
        return {}
    topics = asked.client.metadata(sorted({where.topic for where in wanted})).topics
    asked.pause()
    led = {
        (topic.name, partition.index)
        for topic in topics.values()
        for partition in topic.partitions
        if partition.leader >= 0
    }
    there = [where for where in wanted if tuple(where) in led]
    if not there:
        return {}
    answer = asked.client.cluster.ask_leaders(
        dict.fromkeys(there, LATEST_TIMESTAMP),
        ApiKey.LIST_OFFSETS,
        messages.encode_list_offsets,
        messages.decode_list_offsets,
        of_all=False,
    )
    return {
        where: result.offset
        for where, result in answer.items()
        if result.error is ErrorCode.NONE and result.offset >= 0
    }


def lags_of(
    asked: Asked, groups: Groups, described: GroupDescription
) -> dict[TopicPartition, PartitionLag]:
    """By partition, in order: what the group has committed, and what its members have."""
    owners: dict[TopicPartition, list[GroupMember]] = {}
    for member in described.members:
        for where in member.assigned:
            owners.setdefault(where, []).append(member)
    if described.kind == "share":
        return _of_share(asked, groups, described.group, owners)
    committed = groups.offsets(described.group)
    asked.pause()
    ends = log_ends(asked, committed.keys() | owners.keys())
    found: dict[TopicPartition, PartitionLag] = {}
    for where in in_order(committed.keys() | owners.keys(), asked.pause, tuple):
        commit, members = committed.get(where), owners.get(where, [])
        position = commit.offset if commit is not None and commit.offset >= 0 else None
        end = ends.get(where)
        found[where] = PartitionLag(
            position,
            end,
            None if position is None or end is None else max(0, end - position),
            members[0] if members else None,
            len(members),
            "" if commit is None else commit.metadata,
        )
    return found


def _of_share(
    asked: Asked, groups: Groups, name: str, owners: Mapping[TopicPartition, list[GroupMember]]
) -> dict[TopicPartition, PartitionLag]:
    offsets = groups.share_offsets(name)
    found: dict[TopicPartition, PartitionLag] = {}
    for where in in_order(offsets.keys() | owners.keys(), asked.pause, tuple):
        offset, members = offsets.get(where), owners.get(where, [])
        known = offset is not None and not offset.error
        found[where] = PartitionLag(
            offset.start if offset is not None and known and offset.start != UNKNOWN else None,
            None,
            offset.lag if offset is not None and known and offset.lag != UNKNOWN else None,
            members[0] if members else None,
            len(members),
        )
    return found
