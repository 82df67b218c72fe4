"""The messages of our client about share groups from outside: members, and offsets (KIP-932).

As `group_messages`: a coordinator which has moved or still loads (14, 15, 16) is raised, so that it
is asked for again; other errors of a group are raised too, those of a partition are part of the
result. Pure functions, any thread.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader
from kbroker.types import TopicPartition

UNKNOWN: Final = -1


class ShareMember(NamedTuple):
    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class DescribedShareGroup(NamedTuple):
    group: str
    state: str
    assignor: str
    members: tuple[ShareMember, ...]


class ShareOffset(NamedTuple):
    """Where a group begins to read a partition; -1: it has not begun. `lag` -1: not known."""

    start: int
    lag: int
    error: ErrorCode


def _raise_if_failed(code: int, message: str | None, group: str) -> None:
    error = error_code(code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or f"group '{group}'")


def encode_share_group_describe(version: int, group: str) -> bytes:
    table = tables.share_group_describe
    request = table.Request(group_ids=[group], include_authorized_operations=False)
    return request.encode(version)


def decode_share_group_describe(reader: Reader, version: int) -> DescribedShareGroup:
    (found,) = tables.share_group_describe.Response.read(reader, version).groups
    _raise_if_failed(found.error_code, found.error_message, found.group_id)
    members = [
        ShareMember(
            each.member_id,
            each.client_id,
            each.client_host,
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in each.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for each in found.members
    ]
    return DescribedShareGroup(
        found.group_id, found.group_state, found.assignor_name, tuple(members)
    )


def encode_share_offsets(version: int, group: str) -> bytes:
    """All that the group has begun to read."""
    table = tables.describe_share_group_offsets
    asked = table.RequestGroup(group_id=group, topics=None)
    return table.Request(groups=[asked]).encode(version)


def decode_share_offsets(reader: Reader, version: int) -> dict[TopicPartition, ShareOffset]:
    (found,) = tables.describe_share_group_offsets.Response.read(reader, version).groups
    _raise_if_failed(found.error_code, found.error_message, found.group_id)
    return {
        TopicPartition(topic.topic_name, each.partition_index): ShareOffset(
            each.start_offset, each.lag, error_code(each.error_code)
        )
        for topic in found.topics
        for each in topic.partitions
    }
