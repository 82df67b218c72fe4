"""WriteShareGroupState (85): what the leaders of share-partitions have decided (KIP-932).

Between brokers. Version 1 adds how many offsets from the start on are done (KIP-1226). Fields with
a tag are kbroker's own: the writes of one run of a broker are numbered.
"""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    OWN_TAGS_SINCE,
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


class StateBatch(Record):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Record):
    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()  # -1: it stays as it is
    delivery_complete_count: int = int32(since=1, default=-1)
    state_batches: list[StateBatch] = array(StateBatch)
    writer_run: int = int64(tag=OWN_TAGS_SINCE, default=0)
    write_number: int = int64(tag=OWN_TAGS_SINCE + 1, default=0)


class WriteStateData(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class Request(Message, api=ApiKey.WRITE_SHARE_GROUP_STATE, versions=(0, 1)):
    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Record):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)


class WriteStateResult(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionResult] = array(PartitionResult, each="partitions")


class Response(Message, api=ApiKey.WRITE_SHARE_GROUP_STATE, versions=(0, 1)):
    results: list[WriteStateResult] = array(WriteStateResult, each="topics")
