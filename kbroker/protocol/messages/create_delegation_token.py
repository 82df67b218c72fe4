"""CreateDelegationToken (38): a token that acts for its owner."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    bytes_,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class CreatableRenewers(Record):
    principal_type: str = string()
    principal_name: str = string()


class Request(Message, api=ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3)):
    owner_principal_type: str | None = string(since=3, null=3, default=None)
    owner_principal_name: str | None = string(since=3, null=3, default=None)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class Response(Message, api=ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3)):
    error_code: int = int16()
    principal_type: str = string(default="")
    principal_name: str = string(default="")
    token_requester_principal_type: str = string(since=3, default="")
    token_requester_principal_name: str = string(since=3, default="")
    issue_timestamp_ms: int = int64(default=-1)
    expiry_timestamp_ms: int = int64(default=-1)
    max_timestamp_ms: int = int64(default=-1)
    token_id: str = string(default="")
    hmac: bytes = bytes_(default=b"")
    throttle_time_ms: int = int32(default=0)
