"""FindCoordinator (10): which broker keeps a group, a transaction or a share group."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int8,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.FIND_COORDINATOR, versions=(0, 6)):
    key: str = string(until=3, default="")
    key_type: int = int8(since=1, default=0)
    coordinator_keys: list[str] = array(string, since=4, default=())


class Coordinator(Record):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null=4, default=None)


class Response(Message, api=ApiKey.FIND_COORDINATOR, versions=(0, 6)):
    throttle_time_ms: int = int32(since=1, default=0)
    error_code: int = int16(until=3, default=0)
    error_message: str | None = string(since=1, until=3, null=1, default=None)
    node_id: int = int32(until=3, default=-1)
    host: str = string(until=3, default="")
    port: int = int32(until=3, default=-1)
    coordinators: list[Coordinator] = array(
        Coordinator, since=4, default=(), each="coordinator_keys"
    )
