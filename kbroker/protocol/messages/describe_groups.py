"""DescribeGroups (15): classic groups with their members.

Fields with a tag are kbroker's own: what the log does not say of a group, of either kind.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    OWN_TAGS_SINCE,
    Message,
    Record,
    array,
    boolean,
    bytes_,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6)):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3, default=False)
    with_departures: bool = boolean(since=5, tag=OWN_TAGS_SINCE, default=False)


class Departure(Record):
    time_ms: int = int64()
    member_id: str = string()
    why: str = string()


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
    departures: list[Departure] = array(Departure, since=5, tag=OWN_TAGS_SINCE, default=())
    awaited: list[str] = array(string, since=5, tag=OWN_TAGS_SINCE + 1, default=())


class Response(Message, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6)):
    throttle_time_ms: int = int32(since=1, default=0)
    groups: list[DescribedGroup] = array(DescribedGroup, each="groups")
