"""WriteTxnMarkers (27): markers that end transactions, from their coordinators and from tools.

Fields with a tag are kbroker's own: which outcome of which run of a coordinator a marker is of, so
that a copy which arrives late is known. Apache Kafka skips them.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    OWN_TAGS_SINCE,
    Message,
    Record,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class TopicRequest(Record):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class Marker(Record):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()  # whether it is committed
    topics: list[TopicRequest] = array(TopicRequest)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, default=0)
    coordinator_run: int = int64(tag=OWN_TAGS_SINCE, default=0)
    outcome_number: int = int64(tag=OWN_TAGS_SINCE + 1, default=0)


class Request(Message, api=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2)):
    markers: list[Marker] = array(Marker)


class PartitionResult(Record):
    partition_index: int = int32()
    error_code: int = int16()


class TopicResult(Record):
    name: str = string()
    partitions: list[PartitionResult] = array(PartitionResult, each="partition_indexes")


class MarkerResult(Record):
    producer_id: int = int64()
    topics: list[TopicResult] = array(TopicResult, each="topics")


class Response(Message, api=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2)):
    markers: list[MarkerResult] = array(MarkerResult, each="markers")
