"""ShareFetch (78): a member of a share group acquires records, and acknowledges earlier ones.

A share session of its connection has the partitions: a request names those that it adds, or for
which it has acknowledgements. Version 2 can limit the records exactly (KIP-1206), and ask for more
time for records (KIP-1222).
"""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
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


class AcknowledgementBatch(Record):
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


class FetchPartition(Record):
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Record):
    topic_id: UUID | None = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Record):
    topic_id: UUID | None = uuid()
    partitions: list[int] = array(int32)


class Request(Message, api=ApiKey.SHARE_FETCH, versions=(1, 2)):
    group_id: str | None = string(null=0, default=None)
    member_id: str | None = string(null=0)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8(since=2, default=0)
    is_renew_ack: bool = boolean(since=2, default=False)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class LeaderIdAndEpoch(Record):
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)


class AcquiredRecords(Record):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


class PartitionData(Record):
    partition_index: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)
    acknowledge_error_code: int = int16(default=0)
    acknowledge_error_message: str | None = string(null=0, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, default=LeaderIdAndEpoch())
    records: bytes = bytes_()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Record):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(null=0, default=None)


class Response(Message, api=ApiKey.SHARE_FETCH, versions=(1, 2)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)
    acquisition_lock_timeout_ms: int = int32(default=0)
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
