"""DeleteTopics (20): topics go, by name or by id."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import Message, Record, array, int16, int32, string, uuid
from kbroker.types import ApiKey


class Topic(Record):
    name: str | None = string(null=6, default=None)
    topic_id: UUID | None = uuid(default=None)


class Request(Message, api=ApiKey.DELETE_TOPICS, versions=(1, 6)):
    topics: list[Topic] = array(Topic, since=6, default=())
    topic_names: list[str] = array(string, until=5, default=())
    timeout_ms: int = int32()


class TopicResult(Record):
    name: str | None = string(null=6)
    topic_id: UUID | None = uuid(since=6, default=None)
    error_code: int = int16()
    error_message: str | None = string(since=5, null=5, default=None)


class Response(Message, api=ApiKey.DELETE_TOPICS, versions=(1, 6)):
    throttle_time_ms: int = int32(default=0)
    responses: list[TopicResult] = array(TopicResult, each=("topics", "topic_names"))
