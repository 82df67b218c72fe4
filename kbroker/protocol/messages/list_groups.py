"""ListGroups (16): the groups that a broker coordinates."""

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


class Request(Message, api=ApiKey.LIST_GROUPS, versions=(0, 5)):
    states_filter: list[str] = array(string, since=4, default=())
    types_filter: list[str] = array(string, since=5, default=())


class ListedGroup(Record):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, default="")
    group_type: str = string(since=5, default="")


class Response(Message, api=ApiKey.LIST_GROUPS, versions=(0, 5)):
    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup, default=())
