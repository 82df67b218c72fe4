"""SyncGroup (14): the leader of a classic group brings assignments, each member gets its own."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    bytes_,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class SyncGroupRequestAssignment(Record):
    member_id: str = string()
    assignment: bytes = bytes_()


class Request(Message, api=ApiKey.SYNC_GROUP, versions=(0, 5)):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, null=3, default=None)
    protocol_type: str | None = string(since=5, null=5, default=None)
    protocol_name: str | None = string(since=5, null=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class Response(Message, api=ApiKey.SYNC_GROUP, versions=(0, 5)):
    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, null=5, default=None)
    protocol_name: str | None = string(since=5, null=5, default=None)
    assignment: bytes = bytes_(default=b"")
