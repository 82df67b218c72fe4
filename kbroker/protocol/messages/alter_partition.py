"""AlterPartition (56), between brokers: a leader asks the controller for other in-sync sets.

KIP-497, KIP-841, KIP-903: each member comes with the epoch under which the leader saw it fetch.
"""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import Message, Record, array, int8, int16, int32, int64, uuid
from kbroker.types import ApiKey


class BrokerState(Record):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class Partition(Record):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr_with_epochs: list[BrokerState] = array(BrokerState)
    leader_recovery_state: int = int8(default=0)
    partition_epoch: int = int32()


class Topic(Record):
    topic_id: UUID | None = uuid()
    partitions: list[Partition] = array(Partition)


class Request(Message, api=ApiKey.ALTER_PARTITION, versions=(3, 3)):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[Topic] = array(Topic)


class PartitionResult(Record):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    isr: list[int] = array(int32, default=())
    leader_recovery_state: int = int8(default=0)
    partition_epoch: int = int32(default=-1)


class TopicResult(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class Response(Message, api=ApiKey.ALTER_PARTITION, versions=(3, 3)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    topics: list[TopicResult] = array(TopicResult, default=())
