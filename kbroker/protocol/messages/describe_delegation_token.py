"""DescribeDelegationToken (41): the tokens of some owners."""

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


class DescribeDelegationTokenOwner(Record):
    principal_type: str = string()
    principal_name: str = string()


class Request(Message, api=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3)):
    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, null=0)


class DescribedDelegationTokenRenewer(Record):
    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Record):
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3, default="")
    token_requester_principal_name: str = string(since=3, default="")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class Response(Message, api=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3)):
    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, default=())
    throttle_time_ms: int = int32(default=0)
