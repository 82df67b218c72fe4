"""DeleteShareGroupState (86): the states of share-partitions end (KIP-932). Between brokers."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    string,
    uuid,
)
from kbroker.types import ApiKey


class PartitionData(Record):
    partition: int = int32()


class DeleteStateData(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class Request(Message, api=ApiKey.DELETE_SHARE_GROUP_STATE, versions=(0, 0)):
    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Record):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)


class DeleteStateResult(Record):
    topic_id: UUID | None = uuid()
    partitions: list[PartitionResult] = array(PartitionResult, each="partitions")


class Response(Message, api=ApiKey.DELETE_SHARE_GROUP_STATE, versions=(0, 0)):
    results: list[DeleteStateResult] = array(DeleteStateResult, each="topics")
