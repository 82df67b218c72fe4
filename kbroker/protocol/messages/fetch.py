"""Fetch (1): records of partitions from an offset on. Warm requests are served in C."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    bytes_,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)
from kbroker.types import ApiKey


class ReplicaState(Record):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Record):
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID | None = uuid(since=17, tag=0, default=None)
    high_watermark: int = int64(since=18, tag=1, default=2**63 - 1)


class FetchTopic(Record):
    topic: str = string(until=12, default="")
    topic_id: UUID | None = uuid(since=13, default=None)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Record):
    topic: str = string(until=12, default="")
    topic_id: UUID | None = uuid(since=13, default=None)
    partitions: list[int] = array(int32)


class Request(Message, api=ApiKey.FETCH, versions=(4, 18)):
    cluster_id: str | None = string(since=12, null=12, tag=0, default=None)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, since=15, tag=1, default=None)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8(default=0)
    session_id: int = int32(since=7, default=0)
    session_epoch: int = int32(since=7, default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7, default=())
    rack_id: str = string(since=11, default="")


class EpochEndOffset(Record):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Record):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Record):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Record):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Record):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, null=4, default=None
    )
    preferred_read_replica: int = int32(since=11, default=-1)
    records: bytes | None = bytes_(null=0)


class FetchableTopicResponse(Record):
    topic: str = string(until=12, default="")
    topic_id: UUID | None = uuid(since=13, default=None)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Record):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(null=0, default=None)


class Response(Message, api=ApiKey.FETCH, versions=(4, 18)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=7, default=0)
    session_id: int = int32(since=7, default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0, default=())
