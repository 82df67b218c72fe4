"""JoinGroup (11): a member comes into a classic group, or back to it for the next generation."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    bytes_,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class Protocol(Record):
    name: str = string()
    metadata: bytes = bytes_()


class Request(Message, api=ApiKey.JOIN_GROUP, versions=(0, 9)):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, null=5, default=None)
    protocol_type: str = string()
    protocols: list[Protocol] = array(Protocol)
    reason: str | None = string(since=8, null=8, default=None)


class Member(Record):
    member_id: str = string()
    group_instance_id: str | None = string(since=5, null=5, default=None)
    metadata: bytes = bytes_()


class Response(Message, api=ApiKey.JOIN_GROUP, versions=(0, 9)):
    throttle_time_ms: int = int32(since=2, default=0)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, null=7, default=None)
    protocol_name: str | None = string(null=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9, default=False)
    member_id: str = string()
    members: list[Member] = array(Member, default=())
