"""AddPartitionsToTxn (24): a transaction goes into partitions. Versions below 4 are clients', with
one transaction; from 4 on they are brokers', with many, each to be added or only to be verified.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import (
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


class AddPartitionsToTxnTopic(Record):
    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnTransaction(Record):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean(default=False)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class Request(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5)):
    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4, default=()
    )
    v3_and_below_transactional_id: str = string(until=3, default="")
    v3_and_below_producer_id: int = int64(until=3, default=0)
    v3_and_below_producer_epoch: int = int16(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(
        AddPartitionsToTxnTopic, until=3, default=()
    )


class AddPartitionsToTxnPartitionResult(Record):
    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Record):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult, each="partitions"
    )


class AddPartitionsToTxnResult(Record):
    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, each="topics"
    )


class Response(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4, default=()
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3, default=(), each="v3_and_below_topics"
    )
