"""DescribeUserScramCredentials (50): which SCRAM credentials users have."""

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


class UserName(Record):
    name: str = string()


class Request(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0)):
    users: list[UserName] | None = array(UserName, null=0)


class CredentialInfo(Record):
    mechanism: int = int8()
    iterations: int = int32()


class UserScramCredentialsResult(Record):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(null=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo, default=())


class Response(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0)
    results: list[UserScramCredentialsResult] = array(UserScramCredentialsResult, default=())
