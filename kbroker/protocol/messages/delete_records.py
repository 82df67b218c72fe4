"""DeleteRecords (21): a partition's log begins later from now on."""

from __future__ import annotations

from kbroker.protocol.messages.table import Message, Record, array, int16, int32, int64, string
from kbroker.types import ApiKey


class Partition(Record):
    partition_index: int = int32()
    offset: int = int64()


class Topic(Record):
    name: str = string()
    partitions: list[Partition] = array(Partition)


class Request(Message, api=ApiKey.DELETE_RECORDS, versions=(0, 2)):
    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32()


class PartitionResult(Record):
    partition_index: int = int32()
    low_watermark: int = int64(default=-1)
    error_code: int = int16()


class TopicResult(Record):
    name: str = string()
    partitions: list[PartitionResult] = array(PartitionResult, each="partitions")


class Response(Message, api=ApiKey.DELETE_RECORDS, versions=(0, 2)):
    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResult] = array(TopicResult, each="topics")
