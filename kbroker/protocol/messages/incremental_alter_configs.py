"""IncrementalAlterConfigs (44): single settings of a resource."""

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
    config_operation: int = int8()
    value: str | None = string(null=0)


class AlterConfigsResource(Record):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class Request(Message, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1)):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Record):
    error_code: int = int16()
    error_message: str | None = string(null=0)
    resource_type: int = int8()
    resource_name: str = string()


class Response(Message, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1)):
    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(
        AlterConfigsResourceResponse, each="resources"
    )
