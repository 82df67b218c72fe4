"""CreatePartitions (37): more partitions for a topic."""

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


class CreatePartitionsAssignment(Record):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Record):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, null=0)


class Request(Message, api=ApiKey.CREATE_PARTITIONS, versions=(0, 3)):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Record):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)


class Response(Message, api=ApiKey.CREATE_PARTITIONS, versions=(0, 3)):
    throttle_time_ms: int = int32(default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, each="topics")
