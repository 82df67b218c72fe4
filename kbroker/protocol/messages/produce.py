"""Produce (0): batches of records for partitions. Warm requests are served in C."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    bytes_,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)
from kbroker.types import ApiKey


class BatchIndexAndErrorMessage(Record):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(null=0, default=None)


class PartitionData(Record):
    index: int = int32()
    records: bytes | None = bytes_(null=0)


class TopicData(Record):
    name: str = string(until=12, default="")
    topic_id: UUID | None = uuid(since=13, default=None)
    partition_data: list[PartitionData] = array(PartitionData)


class Request(Message, api=ApiKey.PRODUCE, versions=(3, 13)):
    transactional_id: str | None = string(null=0, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicData] = array(TopicData)


class LeaderIdAndEpoch(Record):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionResponse(Record):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64(default=-1)
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, default=()
    )
    error_message: str | None = string(since=8, null=8, default=None)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=10, tag=0)


class TopicResponse(Record):
    name: str = string(until=12, default="")
    topic_id: UUID | None = uuid(since=13, default=None)
    partition_responses: list[PartitionResponse] = array(PartitionResponse, each="partition_data")


class NodeEndpoint(Record):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(null=0, default=None)


class Response(Message, api=ApiKey.PRODUCE, versions=(3, 13)):
    responses: list[TopicResponse] = array(TopicResponse, each="topic_data")
    throttle_time_ms: int = int32(default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0, default=())
