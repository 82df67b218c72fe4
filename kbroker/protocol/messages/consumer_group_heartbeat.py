"""ConsumerGroupHeartbeat (68): a member joins, stays, changes and leaves by it (KIP-848).

A null array or text of the request means "as before". Version 1 adds the regular expression, and a
member makes its own id.
"""

from __future__ import annotations

from uuid import UUID

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    string,
    struct,
    uuid,
)
from kbroker.types import ApiKey


class TopicPartitions(Record):
    topic_id: UUID | None = uuid()
    partitions: list[int] = array(int32)


class Request(Message, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1)):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(null=0, default=None)
    rack_id: str | None = string(null=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, null=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, null=1, default=None)
    server_assignor: str | None = string(null=0, default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, null=0, default=None)


class Assignment(Record):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Response(Message, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    member_id: str | None = string(null=0, default=None)
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    assignment: Assignment | None = struct(Assignment, null=0, default=None)
