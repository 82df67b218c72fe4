"""DescribeAcls (29): the rules that match a filter."""

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


class Request(Message, api=ApiKey.DESCRIBE_ACLS, versions=(1, 3)):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(null=0)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(null=0)
    host_filter: str | None = string(null=0)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Record):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Record):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class Response(Message, api=ApiKey.DESCRIBE_ACLS, versions=(1, 3)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, default=())
