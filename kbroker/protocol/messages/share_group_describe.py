"""ShareGroupDescribe (77): share groups with their members, for tools (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uuid,
)
from kbroker.types import ApiKey

_NOT_ASKED = -(2**31)


class Request(Message, api=ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1)):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Record):
    topic_id: UUID | None = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class Assignment(Record):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Record):
    member_id: str = string()
    rack_id: str | None = string(null=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: Assignment = struct(Assignment)


class DescribedGroup(Record):
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    group_id: str = string()
    group_state: str = string(default="")
    group_epoch: int = int32(default=0)
    assignment_epoch: int = int32(default=0)
    assignor_name: str = string(default="")
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=_NOT_ASKED)


class Response(Message, api=ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1)):
    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)
