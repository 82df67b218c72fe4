"""EndTxn (26): a producer commits or aborts its transaction.

From version 5 on, the response has the producer id and the epoch for the next one.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import Message, boolean, int16, int32, int64, string
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.END_TXN, versions=(0, 5)):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class Response(Message, api=ApiKey.END_TXN, versions=(0, 5)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1)
    producer_epoch: int = int16(since=5, default=-1)
