"""ShareGroupHeartbeat (76): a member of a share group joins, stays, changes and leaves (KIP-932).

A null text or array of the request means "as before". A member makes its own id.
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


class Request(Message, api=ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1)):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(null=0, default=None)
    subscribed_topic_names: list[str] | None = array(string, null=0, default=None)


class TopicPartitions(Record):
    topic_id: UUID | None = uuid()
    partitions: list[int] = array(int32)


class Assignment(Record):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Response(Message, api=ApiKey.SHARE_GROUP_HEARTBEAT, versions=(1, 1)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0, default=None)
    member_id: str | None = string(null=0, default=None)
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    assignment: Assignment | None = struct(Assignment, null=0, default=None)
