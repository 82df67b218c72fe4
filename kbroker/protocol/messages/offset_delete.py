"""OffsetDelete (47): committed offsets of a group go."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class OffsetDeleteRequestPartition(Record):
    partition_index: int = int32()


class OffsetDeleteRequestTopic(Record):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class Request(Message, api=ApiKey.OFFSET_DELETE, versions=(0, 0)):
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Record):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Record):
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class Response(Message, api=ApiKey.OFFSET_DELETE, versions=(0, 0)):
    error_code: int = int16()
    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, default=())
