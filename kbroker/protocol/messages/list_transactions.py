"""ListTransactions (66): the transactions that a broker coordinates."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.LIST_TRANSACTIONS, versions=(0, 2)):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, null=2, default=None)


class TransactionState(Record):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class Response(Message, api=ApiKey.LIST_TRANSACTIONS, versions=(0, 2)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string, default=())
    transaction_states: list[TransactionState] = array(TransactionState, default=())
