"""AddOffsetsToTxn (25): the offsets of a group go into a transaction."""

from __future__ import annotations

from kbroker.protocol.messages.table import Message, int16, int32, int64, string
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4)):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class Response(Message, api=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
