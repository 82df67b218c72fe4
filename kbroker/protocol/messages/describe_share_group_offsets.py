"""DescribeShareGroupOffsets (90): where share groups begin to read, and their lag.

Version 1 has the lag (KIP-1226). No topics (null): all topics that the group has a state of.
"""

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


class RequestTopic(Record):
    topic_name: str = string()
    partitions: list[int] = array(int32)


class RequestGroup(Record):
    group_id: str = string()
    topics: list[RequestTopic] | None = array(RequestTopic, null=0)


class Request(Message, api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1)):
    groups: list[RequestGroup] = array(RequestGroup)


class ResponsePartition(Record):
    partition_index: int = int32()
    start_offset: int = int64(default=0)
    leader_epoch: int = int32(default=0)
    lag: int = int64(since=1, default=-1)
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)


class ResponseTopic(Record):
    topic_name: str = string()
    topic_id: UUID | None = uuid()
    partitions: list[ResponsePartition] = array(ResponsePartition)


class ResponseGroup(Record):
    group_id: str = string()
    topics: list[ResponseTopic] = array(ResponseTopic)
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)


class Response(Message, api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1)):
    throttle_time_ms: int = int32(default=0)
    groups: list[ResponseGroup] = array(ResponseGroup, each="groups")
