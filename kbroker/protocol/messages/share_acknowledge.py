"""ShareAcknowledge (79): a member of a share group says what became of its records.

It belongs to the share session that ShareFetch has opened, and counts in its epochs. Version 2 can
ask for more time for records (KIP-1222), and answers how much that is.
"""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
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


class AcknowledgePartition(Record):
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Record):
    topic_id: UUID | None = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class Request(Message, api=ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2)):
    group_id: str | None = string(null=0, default=None)
    member_id: str | None = string(null=0)
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean(since=2, default=False)
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class LeaderIdAndEpoch(Record):
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)


class PartitionData(Record):
    partition_index: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, default=LeaderIdAndEpoch())


class ShareAcknowledgeTopicResponse(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Record):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(null=0, default=None)


class Response(Message, api=ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(null=0, default=None)
    acquisition_lock_timeout_ms: int = int32(since=2, default=0)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
