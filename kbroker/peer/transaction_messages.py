"""The messages of our client about transactions from outside: list and describe them, and the
producers of partitions.

As `messages`; `versions` has the versions. Errors of one id or one partition are part of the
result; the error of a whole list is raised. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import by_topic, error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader
from kbroker.types import TopicPartition

ANY_DURATION_MS: Final = -1
NO_TRANSACTION: Final = -1
_DURATION_SINCE: Final = 1  # of ListTransactions
_PATTERN_SINCE: Final = 2


class Filter(NamedTuple):
    """Which transactional ids are listed; by default all."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    open_for_ms: int = ANY_DURATION_MS
    pattern: str | None = None


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class Client(NamedTuple):
    """A client id and an address."""

    client_id: str
    host: str


class DescribedTransaction(NamedTuple):
    """`start_ms` is -1 where no transaction has begun.

    `client`: of the last request that succeeded; None where the coordinator knows none, as after
    its start, or is no kbroker.
    """

    error: ErrorCode
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]
    client: Client | None = None


class DescribedProducer(NamedTuple):
    """A producer that a partition remembers; `start_offset` is that of its open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int


class DescribedProducers(NamedTuple):
    error: ErrorCode
    message: str | None
    producers: tuple[DescribedProducer, ...]


def encode_list_transactions(version: int, wanted: Filter) -> bytes:
    since = _DURATION_SINCE if wanted.open_for_ms >= 0 else 0
    if wanted.pattern is not None:
        since = _PATTERN_SINCE
    if version < since:
        reason = f"the broker lists by states and producer ids alone (ListTransactions {version})"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
    return tables.list_transactions.Request(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=wanted.open_for_ms,
        transactional_id_pattern=wanted.pattern,
    ).encode(version)


def decode_list_transactions(reader: Reader, version: int) -> list[ListedTransaction]:
    response = tables.list_transactions.Response.read(reader, version)
    error = error_code(response.error_code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the broker did not list its transactions")
    if response.unknown_state_filters:
        names = ", ".join(response.unknown_state_filters)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no states of transactions: {names}")
    return [
        ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state)
        for each in response.transaction_states
    ]


def encode_describe_transactions(version: int, transactional_ids: Sequence[str]) -> bytes:
    table = tables.describe_transactions
    return table.Request(transactional_ids=list(transactional_ids), with_clients=True).encode(
        version
    )


def decode_describe_transactions(reader: Reader, version: int) -> list[DescribedTransaction]:
    response = tables.describe_transactions.Response.read(reader, version)
    return [
        DescribedTransaction(
            error_code(each.error_code),
            each.transactional_id,
            each.transaction_state,
            each.transaction_timeout_ms,
            each.transaction_start_time_ms,
            each.producer_id,
            each.producer_epoch,
            tuple(
                TopicPartition(topic.topic, index)
                for topic in each.topics
                for index in topic.partitions
            ),
            Client(each.client_id, each.client_host) if each.client_host else None,
        )
        for each in response.transaction_states
    ]


class AskedShare(NamedTuple):
    """A record of a partition, as a share group reads it."""

    group_id: str
    offset: int


def encode_describe_producers(
    version: int, partitions: Iterable[TopicPartition], share: AskedShare | None = None
) -> bytes:
    table = tables.describe_producers
    topics = [
        table.TopicRequest(name=name, partition_indexes=[where.partition for where in some])
        for name, some in by_topic(dict.fromkeys(partitions))
    ]
    asked = AskedShare("", 0) if share is None else share
    return table.Request(
        topics=topics, share_group_id=asked.group_id, share_offset=asked.offset
    ).encode(version)


def decode_describe_producers(
    reader: Reader, version: int
) -> dict[TopicPartition, DescribedProducers]:
    response = tables.describe_producers.Response.read(reader, version)
    return {
        TopicPartition(topic.name, each.partition_index): DescribedProducers(
            error_code(each.error_code),
            each.error_message,
            tuple(
                DescribedProducer(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                )
                for producer in each.active_producers
            ),
        )
        for topic in response.topics
        for each in topic.partitions
    }
