"""DescribeCluster (60): the brokers of the cluster and its controller."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2)):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2, default=False)


class DescribeClusterBroker(Record):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(null=0, default=None)
    is_fenced: bool = boolean(since=2, default=False)


class Response(Message, api=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string(default="")
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, default=())
    cluster_authorized_operations: int = int32(default=-(2**31))
