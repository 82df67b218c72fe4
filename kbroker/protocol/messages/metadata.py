"""Metadata (3): brokers, topics, who leads which partition. Warm requests are served in C."""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int16,
    int32,
    string,
    uuid,
)
from kbroker.types import ApiKey


class MetadataRequestTopic(Record):
    topic_id: UUID | None = uuid(since=10, default=None)
    name: str | None = string(null=10)


class Request(Message, api=ApiKey.METADATA, versions=(0, 13)):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, null=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10, default=False)
    include_topic_authorized_operations: bool = boolean(since=8, default=False)


class MetadataResponseBroker(Record):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, null=1, default=None)


class MetadataResponsePartition(Record):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=5, default=())


class MetadataResponseTopic(Record):
    error_code: int = int16()
    name: str | None = string(null=12)
    topic_id: UUID | None = uuid(since=10, default=None)
    is_internal: bool = boolean(since=1, default=False)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, default=())
    topic_authorized_operations: int = int32(since=8, default=-(2**31))


class Response(Message, api=ApiKey.METADATA, versions=(0, 13)):
    throttle_time_ms: int = int32(since=3, default=0)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, default=())
    cluster_id: str | None = string(since=2, null=2, default=None)
    controller_id: int = int32(since=1, default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, each="topics", default=())
    cluster_authorized_operations: int = int32(since=8, until=10, default=-(2**31))
    error_code: int = int16(since=13, default=0)
