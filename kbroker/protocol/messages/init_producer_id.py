"""InitProducerId (22): an id and an epoch for a producer, transactional or idempotent."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.INIT_PRODUCER_ID, versions=(0, 5)):
    transactional_id: str | None = string(null=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


class Response(Message, api=ApiKey.INIT_PRODUCER_ID, versions=(0, 5)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16(default=-1)
