"""Heartbeat (12): a member of a classic group lives."""

from __future__ import annotations

from kbroker.protocol.messages.table import Message, int16, int32, string
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.HEARTBEAT, versions=(0, 4)):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, null=3, default=None)


class Response(Message, api=ApiKey.HEARTBEAT, versions=(0, 4)):
    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16()
