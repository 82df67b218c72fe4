"""RenewDelegationToken (39): a token expires later."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    bytes_,
    int16,
    int32,
    int64,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2)):
    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


class Response(Message, api=ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2)):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64(default=-1)
    throttle_time_ms: int = int32(default=0)
