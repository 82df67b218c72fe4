"""CreateTopics (19): topics with their partitions, replicas and settings."""

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
    uuid,
)
from kbroker.types import ApiKey


class Assignment(Record):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class Config(Record):
    name: str = string()
    value: str | None = string(null=0)


class Topic(Record):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[Assignment] = array(Assignment)
    configs: list[Config] = array(Config)


class Request(Message, api=ApiKey.CREATE_TOPICS, versions=(2, 7)):
    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean(default=False)


class ConfigResult(Record):
    name: str = string()
    value: str | None = string(null=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class TopicResult(Record):
    name: str = string()
    topic_id: UUID | None = uuid(since=7, default=None)
    error_code: int = int16()
    error_message: str | None = string(null=0)
    topic_config_error_code: int = int16(since=5, tag=0, default=0)
    num_partitions: int = int32(since=5, default=-1)
    replication_factor: int = int16(since=5, default=-1)
    configs: list[ConfigResult] | None = array(ConfigResult, since=5, null=5, default=())


class Response(Message, api=ApiKey.CREATE_TOPICS, versions=(2, 7)):
    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResult] = array(TopicResult, each="topics")
