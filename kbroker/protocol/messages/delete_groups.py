"""DeleteGroups (42): groups without members go, with their offsets."""

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


class Request(Message, api=ApiKey.DELETE_GROUPS, versions=(0, 2)):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Record):
    group_id: str = string()
    error_code: int = int16()


class Response(Message, api=ApiKey.DELETE_GROUPS, versions=(0, 2)):
    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult, each="groups_names")
