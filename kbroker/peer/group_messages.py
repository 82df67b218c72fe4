"""The messages of our client about groups from outside: who coordinates, lists, describes, commits.

As `messages`; `versions` has the versions. The messages of a member itself are in
`member_messages`. Errors of one group or one partition are part of the result, except that a
coordinator which has moved or still loads (14, 15, 16) is raised, so that it is asked for anew.
Pure functions, any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import by_topic, error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.protocol.messages.describe_groups import DescribedGroupMember
    from kbroker.protocol.messages.offset_commit import OffsetCommitResponseTopic
    from kbroker.protocol.messages.offset_delete import OffsetDeleteResponseTopic

COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
GROUP_KEY: Final = 0
NO_GENERATION: Final = -1
NO_OFFSET: Final = -1


class Coordinator(NamedTuple):
    node_id: int
    host: str
    port: int


class ListedGroup(NamedTuple):
    """`state` is empty where the broker is too old to say (before ListGroups 4), and so is
    `group_type` (before 5): else classic, consumer, share or streams."""

    group: str
    protocol_type: str
    state: str
    group_type: str = ""


class DescribedMember(NamedTuple):
    """`metadata` and `assignment` are the members' own bytes: see `consumer_protocol`."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    error: ErrorCode
    message: str | None
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class Departure(NamedTuple):
    """A member that has gone, and why."""

    time_ms: int
    member_id: str
    why: str


class Unwritten(NamedTuple):
    """What the log does not say of a group; nothing where its coordinator is no kbroker."""

    state: str
    departures: tuple[Departure, ...]
    awaited: tuple[str, ...]  # members for which a rebalance of a classic group waits


class Committed(NamedTuple):
    """What a group has committed for a partition; offset -1 is nothing."""

    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


class MemberIdentity(NamedTuple):
    """The committer: a member of a generation, or, by default, no member."""

    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


def raise_if_moved(error: ErrorCode, group: str) -> None:
    if error in COORDINATOR_MOVED:
        raise KafkaError(error, f"group '{group}'")


def encode_find_coordinator(version: int, group: str) -> bytes:
    return tables.find_coordinator.Request(key=group, key_type=GROUP_KEY).encode(version)


def decode_find_coordinator(reader: Reader, version: int) -> Coordinator:
    response = tables.find_coordinator.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, response.error_message or "no coordinator")
    return Coordinator(response.node_id, response.host, response.port)


def encode_list_groups(version: int, states: Sequence[str] = ()) -> bytes:
    """Of every type; an old broker does not filter, so the caller does that as well."""
    return tables.list_groups.Request(states_filter=list(states)).encode(version)


def decode_list_groups(reader: Reader, version: int) -> list[ListedGroup]:
    response = tables.list_groups.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the broker refused to list groups")
    return [
        ListedGroup(each.group_id, each.protocol_type, each.group_state, each.group_type)
        for each in response.groups
    ]


def encode_describe_groups(version: int, groups: Sequence[str]) -> bytes:
    return tables.describe_groups.Request(groups=list(groups)).encode(version)


def decode_describe_groups(reader: Reader, version: int) -> list[DescribedGroup]:
    response = tables.describe_groups.Response.read(reader, version)
    for group in response.groups:
        raise_if_moved(error_code(group.error_code), group.group_id)
    return [
        DescribedGroup(
            error_code(group.error_code),
            group.error_message,
            group.group_id,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            tuple([_described(member) for member in group.members]),
        )
        for group in response.groups
    ]


def encode_unwritten(version: int, group: str) -> bytes:
    return tables.describe_groups.Request(groups=[group], with_departures=True).encode(version)


def decode_unwritten(reader: Reader, version: int) -> Unwritten:
    (group,) = tables.describe_groups.Response.read(reader, version).groups
    raise_if_moved(error_code(group.error_code), group.group_id)
    return Unwritten(
        group.group_state,
        tuple(Departure(each.time_ms, each.member_id, each.why) for each in group.departures),
        tuple(group.awaited),
    )


def _described(member: DescribedGroupMember) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.member_metadata,
        member.member_assignment,
    )


def encode_offset_fetch(
    version: int,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> bytes:
    """`None` asks for everything that the group has committed. `require_stable`: the answer waits
    until its followers have that."""
    table = tables.offset_fetch
    topics = None
    if partitions is not None:
        topics = [
            table.OffsetFetchRequestTopics(
                name=name,
                partition_indexes=struct.pack(f">{len(some)}i", *[each.partition for each in some]),
            )
            for name, some in by_topic(partitions)
        ]
    request = table.Request(group_id=group, topics=topics, require_stable=require_stable)
    return request.encode(version)


def decode_offset_fetch(reader: Reader, version: int) -> dict[TopicPartition, Committed]:
    response = tables.offset_fetch.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the committed offsets")
    return {
        TopicPartition(topic.name, each.partition_index): Committed(
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata or "",
            error_code(each.error_code),
        )
        for topic in response.topics
        for each in topic.partitions
    }


def encode_offset_commit(
    version: int, group: str, offsets: Mapping[TopicPartition, int], member: MemberIdentity
) -> bytes:
    table = tables.offset_commit
    topics = [
        table.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                table.OffsetCommitRequestPartition(
                    partition_index=where.partition,
                    committed_offset=offsets[where],
                    committed_metadata="",
                )
                for where in some
            ],
        )
        for name, some in by_topic(offsets)
    ]
    request = table.Request(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=topics,
    )
    return request.encode(version)


def decode_offset_commit(reader: Reader, version: int) -> dict[TopicPartition, ErrorCode]:
    return _partition_errors(tables.offset_commit.Response.read(reader, version).topics)


def _partition_errors(
    topics: Sequence[OffsetCommitResponseTopic | OffsetDeleteResponseTopic],
) -> dict[TopicPartition, ErrorCode]:
    errors = {
        TopicPartition(topic.name, each.partition_index): error_code(each.error_code)
        for topic in topics
        for each in topic.partitions
    }
    for where, error in errors.items():
        if error in COORDINATOR_MOVED:
            raise KafkaError(error, str(where))
    return errors


def encode_delete_groups(version: int, groups: Sequence[str]) -> bytes:
    return tables.delete_groups.Request(groups_names=list(groups)).encode(version)


def decode_delete_groups(reader: Reader, version: int) -> dict[str, ErrorCode]:
    response = tables.delete_groups.Response.read(reader, version)
    errors = {each.group_id: error_code(each.error_code) for each in response.results}
    for group, error in errors.items():
        raise_if_moved(error, group)
    return errors


def encode_offset_delete(version: int, group: str, partitions: Iterable[TopicPartition]) -> bytes:
    table = tables.offset_delete
    topics = [
        table.OffsetDeleteRequestTopic(
            name=name,
            partitions=[
                table.OffsetDeleteRequestPartition(partition_index=where.partition)
                for where in some
            ],
        )
        for name, some in by_topic(partitions)
    ]
    return table.Request(group_id=group, topics=topics).encode(version)


def decode_offset_delete(reader: Reader, version: int) -> dict[TopicPartition, ErrorCode]:
    response = tables.offset_delete.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the group's offsets")
    return _partition_errors(response.topics)
