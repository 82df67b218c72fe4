"""StreamsGroupDescribe (89): streams groups with topology and members, for tools (KIP-1071)."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)
from kbroker.types import ApiKey

_NOT_ASKED = -(2**31)


class Request(Message, api=ApiKey.STREAMS_GROUP_DESCRIBE, versions=(0, 0)):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class KeyValue(Record):
    key: str = string()
    value: str = string()


class TopicInfo(Record):
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


class Assignment(Record):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class Subtopology(Record):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Record):
    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, null=0, default=None)


class Member(Record):
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(null=0, default=None)
    rack_id: str | None = string(null=0, default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, null=0, default=None)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean(default=False)


class DescribedGroup(Record):
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    group_id: str = string()
    group_state: str = string(default="")
    group_epoch: int = int32(default=0)
    assignment_epoch: int = int32(default=0)
    topology: Topology | None = struct(Topology, null=0, default=None)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=_NOT_ASKED)


class Response(Message, api=ApiKey.STREAMS_GROUP_DESCRIBE, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)
