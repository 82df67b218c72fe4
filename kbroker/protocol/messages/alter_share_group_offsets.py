"""AlterShareGroupOffsets (91): a share group without members is to read from other offsets."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from kbroker.types import ApiKey


class RequestPartition(Record):
    partition_index: int = int32()
    start_offset: int = int64()


class RequestTopic(Record):
    topic_name: str = string()
    partitions: list[RequestPartition] = array(RequestPartition)


class Request(Message, api=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0)):
    group_id: str = string()
    topics: list[RequestTopic] = array(RequestTopic)


class ResponsePartition(Record):
    partition_index: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)


class ResponseTopic(Record):
    topic_name: str = string()
    topic_id: UUID | None = uuid()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class Response(Message, api=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)
    responses: list[ResponseTopic] = array(ResponseTopic)
