"""OffsetForLeaderEpoch (23): where the records of a leader epoch end."""

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


class OffsetForLeaderPartition(Record):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Record):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class Request(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4)):
    replica_id: int = int32(since=3, default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Record):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Record):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset, each="partitions")


class Response(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4)):
    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, each="topics")
