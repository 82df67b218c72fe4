"""ReadShareGroupStateSummary (87): starts and epochs of share-partitions' states (KIP-932).

Between brokers. Version 1 adds how many offsets from the start on are done (KIP-1226).
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


class PartitionData(Record):
    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class Request(Message, api=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=(0, 1)):
    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class PartitionResult(Record):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    state_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    delivery_complete_count: int = int32(since=1, default=-1)


class ReadStateSummaryResult(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionResult] = array(PartitionResult, each="partitions")


class Response(Message, api=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions=(0, 1)):
    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult, each="topics")
