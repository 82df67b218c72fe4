"""TxnOffsetCommit (28): how far a group has read, as part of a producer's transaction."""

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


class TxnOffsetCommitRequestPartition(Record):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1)
    committed_metadata: str | None = string(null=0)


class TxnOffsetCommitRequestTopic(Record):
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class Request(Message, api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5)):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3, default="")
    group_instance_id: str | None = string(since=3, null=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Record):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Record):
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(
        TxnOffsetCommitResponsePartition, each="partitions"
    )


class Response(Message, api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5)):
    throttle_time_ms: int = int32(default=0)
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, each="topics")
