"""DeleteShareGroupOffsets (92): a share group without members forgets the offsets of topics."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    string,
    uuid,
)
from kbroker.types import ApiKey


class RequestTopic(Record):
    topic_name: str = string()


class Request(Message, api=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0)):
    group_id: str = string()
    topics: list[RequestTopic] = array(RequestTopic)


class ResponseTopic(Record):
    topic_name: str = string()
    topic_id: UUID | None = uuid()
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)


class Response(Message, api=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)
    responses: list[ResponseTopic] = array(ResponseTopic)
