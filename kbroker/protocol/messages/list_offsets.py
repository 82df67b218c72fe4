"""ListOffsets (2): the offset at a time, or at an end of the log."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class ListOffsetsPartition(Record):
    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(Record):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class Request(Message, api=ApiKey.LIST_OFFSETS, versions=(1, 11)):
    replica_id: int = int32()
    isolation_level: int = int8(since=2, default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, default=0)


class ListOffsetsPartitionResponse(Record):
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


class ListOffsetsTopicResponse(Record):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(
        ListOffsetsPartitionResponse, each="partitions"
    )


class Response(Message, api=ApiKey.LIST_OFFSETS, versions=(1, 11)):
    throttle_time_ms: int = int32(since=2, default=0)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, each="topics")
