"""DescribeTransactions (65): transactions by their id.

Fields with a tag are kbroker's own: the client of a transactional id, for those who ask for it.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    OWN_TAGS_SINCE,
    Message,
    Record,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0)):
    transactional_ids: list[str] = array(string)
    with_clients: bool = boolean(tag=OWN_TAGS_SINCE, default=False)


class TopicData(Record):
    topic: str = string()
    partitions: list[int] = array(int32)


class TransactionState(Record):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string(default="")
    transaction_timeout_ms: int = int32(default=0)
    transaction_start_time_ms: int = int64(default=0)
    producer_id: int = int64(default=0)
    producer_epoch: int = int16(default=0)
    topics: list[TopicData] = array(TopicData, default=())
    client_id: str = string(tag=OWN_TAGS_SINCE, default="")
    client_host: str = string(tag=OWN_TAGS_SINCE + 1, default="")


class Response(Message, api=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0)):
    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array(TransactionState, each="transactional_ids")
