"""StreamsGroupHeartbeat (88): a member of a streams group joins, stays, and leaves (KIP-1071).

A null text, structure or array of the request means "as before", and so does a rebalance timeout of
-1. A member makes its own id, and brings its topology when it joins.
"""

from __future__ import annotations

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
    uint16,
)
from kbroker.types import ApiKey


class KeyValue(Record):
    key: str = string()
    value: str = string()


class TopicInfo(Record):
    """`partitions` 0: the broker finds the number; `replication_factor` 0: the broker's default."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Endpoint(Record):
    host: str = string()
    port: int = uint16()


class TaskIds(Record):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class TaskOffset(Record):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class CopartitionGroup(Record):
    """Positions in the arrays of the subtopology."""

    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


class Subtopology(Record):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class Topology(Record):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


class Request(Message, api=ApiKey.STREAMS_GROUP_HEARTBEAT, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(null=0, default=None)
    rack_id: str | None = string(null=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, null=0, default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, null=0, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, null=0, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, null=0, default=None)
    process_id: str | None = string(null=0, default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, null=0, default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, null=0, default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, null=0, default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, null=0, default=None)
    shutdown_application: bool = boolean(default=False)


class Status(Record):
    status_code: int = int8()
    status_detail: str = string()


class TopicPartition(Record):
    topic: str = string()
    partitions: list[int] = array(int32)


class EndpointToPartitions(Record):
    user_endpoint: Endpoint = struct(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class Response(Message, api=ApiKey.STREAMS_GROUP_HEARTBEAT, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    member_id: str = string(default="")
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    acceptable_recovery_lag: int = int32(default=0)
    task_offset_interval_ms: int = int32(default=0)
    status: list[Status] | None = array(Status, null=0)
    active_tasks: list[TaskIds] | None = array(TaskIds, null=0, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, null=0, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, null=0, default=None)
    endpoint_information_epoch: int = int32(default=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, null=0, default=None
    )
