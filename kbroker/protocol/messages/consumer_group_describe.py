"""ConsumerGroupDescribe (69): groups of the consumer protocol with their members (KIP-848)."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1)):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Record):
    topic_id: UUID | None = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class Assignment(Record):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Record):
    """`member_type`: 0 classic, 1 consumer, -1 unknown."""

    member_id: str = string()
    instance_id: str | None = string(null=0, default=None)
    rack_id: str | None = string(null=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(null=0, default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8(since=1, default=-1)


class DescribedGroup(Record):
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    group_id: str = string()
    group_state: str = string(default="")
    group_epoch: int = int32(default=0)
    assignment_epoch: int = int32(default=0)
    assignor_name: str = string(default="")
    members: list[Member] = array(Member, default=())
    authorized_operations: int = int32(default=-(2**31))


class Response(Message, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1)):
    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup, each="group_ids")
