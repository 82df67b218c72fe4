"""DescribeConfigs (32): the settings of brokers, topics, groups and loggers."""

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


class DescribeConfigsResource(Record):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, null=0, default=None)


class Request(Message, api=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4)):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(default=False)
    include_documentation: bool = boolean(since=3, default=False)


class DescribeConfigsSynonym(Record):
    name: str = string()
    value: str | None = string(null=0)
    source: int = int8()


class DescribeConfigsResourceResult(Record):
    name: str = string()
    value: str | None = string(null=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, default=())
    config_type: int = int8(since=3, default=0)
    documentation: str | None = string(since=3, null=3, default=None)


class DescribeConfigsResult(Record):
    error_code: int = int16()
    error_message: str | None = string(null=0)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, default=())


class Response(Message, api=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4)):
    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, each="resources")
