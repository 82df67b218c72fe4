"""ReadShareGroupState (84): the whole states of share-partitions, for their leaders (KIP-932).

Between brokers. A read with a higher leader epoch fences the leaders before.
"""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int8,
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


class ReadStateData(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class Request(Message, api=ApiKey.READ_SHARE_GROUP_STATE, versions=(0, 0)):
    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Record):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Record):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    state_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionResult] = array(PartitionResult, each="partitions")


class Response(Message, api=ApiKey.READ_SHARE_GROUP_STATE, versions=(0, 0)):
    results: list[ReadStateResult] = array(ReadStateResult, each="topics")
