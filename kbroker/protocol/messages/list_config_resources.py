"""ListConfigResources (74): the resources that have settings of their own."""

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


class Request(Message, api=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1)):
    resource_types: list[int] = array(int8, since=1, default=())


class ConfigResource(Record):
    resource_name: str = string()
    resource_type: int = int8(since=1, default=16)


class Response(Message, api=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource, default=())
