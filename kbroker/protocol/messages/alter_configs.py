"""AlterConfigs (33): the settings of a resource, all of them anew."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class AlterableConfig(Record):
    name: str = string()
    value: str | None = string(null=0)


class AlterConfigsResource(Record):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class Request(Message, api=ApiKey.ALTER_CONFIGS, versions=(0, 2)):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Record):
    error_code: int = int16()
    error_message: str | None = string(null=0)
    resource_type: int = int8()
    resource_name: str = string()


class Response(Message, api=ApiKey.ALTER_CONFIGS, versions=(0, 2)):
    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(
        AlterConfigsResourceResponse, each="resources"
    )
