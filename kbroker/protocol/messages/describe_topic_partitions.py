"""DescribeTopicPartitions (75): topics with their partitions, a page at a time."""

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


class TopicRequest(Record):
    name: str = string()


class RequestCursor(Record):
    topic_name: str = string()
    partition_index: int = int32()


class Request(Message, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0)):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: RequestCursor | None = struct(RequestCursor, null=0)


class PartitionResponse(Record):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, null=0, default=None)
    last_known_elr: list[int] | None = array(int32, null=0, default=None)
    offline_replicas: list[int] = array(int32)


class TopicResponse(Record):
    error_code: int = int16()
    name: str | None = string(null=0)
    topic_id: UUID | None = uuid(default=None)
    is_internal: bool = boolean(default=False)
    partitions: list[PartitionResponse] = array(PartitionResponse, default=())
    topic_authorized_operations: int = int32(default=-(2**31))


class Cursor(Record):
    topic_name: str = string()
    partition_index: int = int32()


class Response(Message, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array(TopicResponse, each="topics")
    next_cursor: Cursor | None = struct(Cursor, null=0)
