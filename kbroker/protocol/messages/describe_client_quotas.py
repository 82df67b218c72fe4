"""DescribeClientQuotas (48): the quotas of users, clients and addresses."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class ComponentData(Record):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(null=0)


class Request(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1)):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Record):
    entity_type: str = string()
    entity_name: str | None = string(null=0)


class ValueData(Record):
    key: str = string()
    value: float = float64()


class EntryData(Record):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class Response(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0)
    entries: list[EntryData] | None = array(EntryData, null=0, default=None)
