"""AlterClientQuotas (49): users, clients and addresses get quotas, or lose them."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    float64,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class EntityData(Record):
    entity_type: str = string()
    entity_name: str | None = string(null=0)


class OpData(Record):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Record):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class Request(Message, api=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1)):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class Result(Record):
    error_code: int = int16()
    error_message: str | None = string(null=0)
    entity: list[EntityData] = array(EntityData)


class Response(Message, api=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1)):
    throttle_time_ms: int = int32(default=0)
    entries: list[Result] = array(Result)
