"""ListPartitionReassignments (46): partitions whose replicas are being moved."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class ListPartitionReassignmentsTopics(Record):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class Request(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0)):
    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, null=0, default=None
    )


class OngoingPartitionReassignment(Record):
    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(Record):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class Response(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, default=())
