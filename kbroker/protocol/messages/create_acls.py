"""CreateAcls (30): rules that say which principal may do what."""

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


class AclCreation(Record):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class Request(Message, api=ApiKey.CREATE_ACLS, versions=(1, 3)):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Record):
    error_code: int = int16()
    error_message: str | None = string(null=0)


class Response(Message, api=ApiKey.CREATE_ACLS, versions=(1, 3)):
    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array(AclCreationResult, each="creations")
