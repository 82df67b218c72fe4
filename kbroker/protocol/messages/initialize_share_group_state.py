"""InitializeShareGroupState (83): the states of share-partitions begin (KIP-932).

Between brokers, from the group's coordinator to the share coordinator. The start is -1 where the
first fetch is to find it.
"""

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


class PartitionData(Record):
    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


class InitializeStateData(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class Request(Message, api=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions=(0, 0)):
    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Record):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)


class InitializeStateResult(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionResult] = array(PartitionResult, each="partitions")


class Response(Message, api=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions=(0, 0)):
    results: list[InitializeStateResult] = array(InitializeStateResult, each="topics")
