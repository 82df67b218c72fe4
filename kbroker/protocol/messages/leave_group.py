"""LeaveGroup (13): members leave a classic group."""

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


class MemberIdentity(Record):
    member_id: str = string()
    group_instance_id: str | None = string(null=3, default=None)
    reason: str | None = string(since=5, null=5, default=None)


class Request(Message, api=ApiKey.LEAVE_GROUP, versions=(0, 5)):
    group_id: str = string()
    member_id: str = string(until=2, default="")
    members: list[MemberIdentity] = array(MemberIdentity, since=3, default=())


class MemberResponse(Record):
    member_id: str = string()
    group_instance_id: str | None = string(null=3, default=None)
    error_code: int = int16()


class Response(Message, api=ApiKey.LEAVE_GROUP, versions=(0, 5)):
    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3, default=())
