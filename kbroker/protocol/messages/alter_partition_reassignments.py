"""AlterPartitionReassignments (45): other replicas for a partition, or the end of such a move."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class ReassignablePartition(Record):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, null=0, default=None)


class ReassignableTopic(Record):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class Request(Message, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1)):
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Record):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0)


class ReassignableTopicResponse(Record):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class Response(Message, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1)):
    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    error_code: int = int16()
    error_message: str | None = string(null=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, default=())
