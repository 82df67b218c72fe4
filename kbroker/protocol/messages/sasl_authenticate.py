"""SaslAuthenticate (36): one token of a mechanism, and the one that answers it."""

from __future__ import annotations

from kbroker.protocol.messages.table import Message, bytes_, int16, int64, string
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.SASL_AUTHENTICATE, versions=(0, 2)):
    auth_bytes: bytes = bytes_()


class Response(Message, api=ApiKey.SASL_AUTHENTICATE, versions=(0, 2)):
    error_code: int = int16()
    error_message: str | None = string(null=0)
    auth_bytes: bytes = bytes_(default=b"")
    session_lifetime_ms: int = int64(since=1, default=0)
