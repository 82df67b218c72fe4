"""OffsetCommit (8): how far a group has read. Warm requests are served in C."""

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


class OffsetCommitRequestPartition(Record):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    committed_metadata: str | None = string(null=0)


class OffsetCommitRequestTopic(Record):
    name: str = string(until=9, default="")
    topic_id: UUID | None = uuid(since=10, default=None)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class Request(Message, api=ApiKey.OFFSET_COMMIT, versions=(2, 10)):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string(default="")
    group_instance_id: str | None = string(since=7, null=7, default=None)
    retention_time_ms: int = int64(until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Record):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Record):
    name: str = string(until=9, default="")
    topic_id: UUID | None = uuid(since=10, default=None)
    partitions: list[OffsetCommitResponsePartition] = array(
        OffsetCommitResponsePartition, each="partitions"
    )


class Response(Message, api=ApiKey.OFFSET_COMMIT, versions=(2, 10)):
    throttle_time_ms: int = int32(since=3, default=0)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, each="topics")
