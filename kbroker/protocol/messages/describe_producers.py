"""DescribeProducers (61): the producers that a partition remembers."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class TopicRequest(Record):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class Request(Message, api=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0)):
    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Record):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Record):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState, default=())


class TopicResponse(Record):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse, each="partition_indexes")


class Response(Message, api=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array(TopicResponse, each="topics")
