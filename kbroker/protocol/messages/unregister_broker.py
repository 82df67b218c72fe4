"""UnregisterBroker (64): a broker that will not come back is forgotten."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.UNREGISTER_BROKER, versions=(0, 0)):
    broker_id: int = int32()


class Response(Message, api=ApiKey.UNREGISTER_BROKER, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0)
