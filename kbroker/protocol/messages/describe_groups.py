"""DescribeGroups (15): classic groups with their members."""

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


class Request(Message, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6)):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3, default=False)


class DescribedGroupMember(Record):
    member_id: str = string()
    group_instance_id: str | None = string(since=4, null=4, default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Record):
    error_code: int = int16()
    error_message: str | None = string(since=6, null=6, default=None)
    group_id: str = string()
    group_state: str = string(default="")
    protocol_type: str = string(default="")
    protocol_data: str = string(default="")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, default=())
    authorized_operations: int = int32(since=3, default=-(2**31))


class Response(Message, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6)):
    throttle_time_ms: int = int32(since=1, default=0)
    groups: list[DescribedGroup] = array(DescribedGroup, each="groups")
