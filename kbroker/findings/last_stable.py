"""Which transaction a read_committed consumer waits for, and what will become of it.

A partition's last stable offset is the first offset of its oldest open transaction. The leader
knows the producer id of that (DescribeProducers), the coordinators which transactional id it
belongs to (ListTransactions), and the id's coordinator what state it is in (DescribeTransactions).
A transaction that is open in a partition and at no coordinator is hanging.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.findings.moments import shown_moment, shown_span
from kbroker.findings.transactions import client_document
from kbroker.peer.transaction_messages import DescribedProducer, DescribedProducers, Filter
from kbroker.peer.transactions import ONGOING, OPEN_STATES, Described, Transactions
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.messages import OffsetResult

# Of a transaction that waits for markers: so many of its partitions are looked at, and named.
PARTITIONS_LOOKED_AT_MAX: Final = 100
_NAMED_MAX: Final = 3
# A coordinator looks for timeouts this often (transaction.abort.timed.out...interval.ms).
_SWEEP_MS: Final = 10_000
_LATE_MS: Final = 2 * _SWEEP_MS
_ENDS: Final = "The leader ends it by itself five minutes after transaction.max.timeout.ms"
_NONE_OPEN: Final = (
    "no transaction is open: the last one has just ended, or its marker is not on every replica in"
    " sync"
)


class Held(NamedTuple):
    """A partition in which committed records cannot be read to the end.

    `is_trouble`: it does not end by itself soon.
    """

    partition: TopicPartition
    last_stable: int
    high_watermark: int
    producer: DescribedProducer | None
    transaction: Described | None
    verdict: str
    is_trouble: bool

    def document(self) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        if self.producer is not None:
            facts["held_by"] = {
                "producer_id": self.producer.producer_id,
                "producer_epoch": self.producer.epoch,
                "first_offset": self.producer.start_offset,
                "last_batch": shown_moment(self.producer.last_timestamp_ms),
            }
            facts["client"] = None
        if self.transaction is not None:
            found = self.transaction.transaction
            facts["client"] = client_document(found.client)
            facts["transaction"] = {
                "id": found.transactional_id,
                "state": found.state,
                "coordinator": self.transaction.coordinator,
                "began": shown_moment(found.start_ms) if found.start_ms >= 0 else None,
                "timeout_ms": found.timeout_ms,
                "partitions": len(found.partitions),
            }
        return facts


class Verdict(NamedTuple):
    text: str
    is_trouble: bool


class Offsets(NamedTuple):
    """Offsets of a partition between which committed records wait."""

    last_stable: int
    high_watermark: int

    @property
    def waiting(self) -> int:
        return self.high_watermark - self.last_stable


def stable_offsets(
    client: Client, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Offsets]:
    """Both offsets of each partition whose leader answers, asked once."""
    from kbroker.peer import messages
    from kbroker.peer.isolation import READ_COMMITTED, READ_UNCOMMITTED
    from kbroker.types import ApiKey

    def ask(isolation: int) -> dict[TopicPartition, OffsetResult]:
        return client.cluster.ask_leaders(
            dict.fromkeys(partitions, messages.LATEST_TIMESTAMP),
            ApiKey.LIST_OFFSETS,
            lambda version, share: messages.encode_list_offsets(version, share, isolation),
            messages.decode_list_offsets,
        )

    # The last stable offset comes first: both only rise, so no transaction is overlooked.
    stable = ask(READ_COMMITTED)
    high = ask(READ_UNCOMMITTED)
    return {
        each: Offsets(stable[each].offset, max(stable[each].offset, high[each].offset))
        for each in partitions
        if each in stable and each in high and not stable[each].error and not high[each].error
    }


def held(client: Client, offsets: Mapping[TopicPartition, Offsets], now_ms: int) -> list[Held]:
    """What holds each of these partitions."""
    if not offsets:
        return []
    asked = Transactions(client)
    silent = DescribedProducers(ErrorCode.LEADER_NOT_AVAILABLE, None, ())
    producers = dict.fromkeys(offsets, silent) | asked.producers_now(offsets)
    first = {each: _first_open(found) for each, found in producers.items()}
    ids = sorted({each.producer_id for each in first.values() if each is not None})
    by_producer = _transactions_of(asked, ids)
    return [
        _judge(asked, each, offsets[each], producers[each], first[each], by_producer, now_ms)
        for each in offsets
    ]


def _first_open(found: DescribedProducers) -> DescribedProducer | None:
    is_open = [each for each in found.producers if each.start_offset >= 0]
    return min(is_open, key=lambda each: each.start_offset, default=None)


def _transactions_of(asked: Transactions, producer_ids: Sequence[int]) -> dict[int, Described]:
    """The transactional id of each producer id that a coordinator knows."""
    if not producer_ids:
        return {}
    listed = asked.list_transactions(Filter(producer_ids=producer_ids))
    described = asked.describe([each.transaction.transactional_id for each in listed])
    return {
        each.transaction.producer_id: each
        for each in described.values()
        if not each.transaction.error
    }


def _judge(
    asked: Transactions,
    partition: TopicPartition,
    offsets: Offsets,
    found: DescribedProducers,
    producer: DescribedProducer | None,
    by_producer: Mapping[int, Described],
    now_ms: int,
) -> Held:
    transaction = None if producer is None else by_producer.get(producer.producer_id)
    state = "" if transaction is None else transaction.transaction.state
    if found.error is not ErrorCode.NONE:
        verdict = Verdict(f"its leader does not name its producers: {found.error.name}", True)
    elif producer is None:
        verdict = Verdict(_NONE_OPEN, False)
    elif transaction is None or state not in OPEN_STATES:
        verdict = _hanging(partition, producer, transaction)
    elif partition not in transaction.transaction.partitions:
        reason = "is open without this partition, so its marker does not come here"
        verdict = _hanging(partition, producer, transaction, reason)
    elif state == ONGOING:
        verdict = _ongoing(transaction, now_ms)
    else:
        verdict = _prepared(asked, transaction)
    return Held(partition, *offsets, producer, transaction, *verdict)


def _hanging(
    partition: TopicPartition,
    producer: DescribedProducer,
    transaction: Described | None,
    reason: str = "is over",
) -> Verdict:
    known = f"no coordinator has a transaction of producer id {producer.producer_id}"
    if transaction is not None:
        found = transaction.transaction
        known = f"the transaction of '{found.transactional_id}' {reason} ({found.state})"
    return Verdict(
        f"hanging: {known}. {_ENDS}; kafka-transactions.sh abort --topic"
        f" {partition.topic} --partition {partition.partition} --start-offset"
        f" {producer.start_offset} ends it now",
        True,
    )


def _ongoing(described: Described, now_ms: int) -> Verdict:
    found = described.transaction
    left_ms = found.start_ms + found.timeout_ms - now_ms
    name = f"'{found.transactional_id}'"
    if left_ms >= 0:
        return Verdict(
            f"running: {name} has to commit or abort; its coordinator aborts it in"
            f" {shown_span(left_ms)}",
            False,
        )
    late = shown_span(-left_ms)
    if left_ms >= -_LATE_MS:
        verdict = f"its timeout is over: broker {described.coordinator} aborts {name} soon"
        return Verdict(verdict, False)
    return Verdict(
        f"late: {name} is {late} over its timeout, and broker {described.coordinator} has not"
        " aborted it: see the broker's log",
        True,
    )


def _prepared(asked: Transactions, described: Described) -> Verdict:
    """Its markers are on their way; which partitions have none, and whether one is without a
    leader."""
    found = described.transaction
    word = "commit" if found.state == "PrepareCommit" else "abort"
    head = f"the {word} of '{found.transactional_id}' is decided, and its markers are being written"
    places = found.partitions[:PARTITIONS_LOOKED_AT_MAX]
    waiting, away = _without_marker(asked, places, found.producer_id)
    if away:
        return Verdict(f"{head}: {_named(away)} cannot be reached", True)
    if waiting:
        return Verdict(f"{head}: {_named(waiting)} have none yet", False)
    return Verdict(f"{head}: they wait to be on every replica in sync", False)


def _without_marker(
    asked: Transactions, partitions: Iterable[TopicPartition], producer_id: int
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Partitions in which the transaction is open, and those that do not answer."""
    waiting: list[TopicPartition] = []
    away: list[TopicPartition] = []
    answers = asked.producers_now(partitions)
    for place in partitions:
        answer = answers.get(place)
        if answer is None or answer.error:
            away.append(place)
        elif any(
            each.producer_id == producer_id and each.start_offset >= 0 for each in answer.producers
        ):
            waiting.append(place)
    return waiting, away


def _named(partitions: Sequence[TopicPartition]) -> str:
    names = ", ".join(f"{each.topic}/{each.partition}" for each in partitions[:_NAMED_MAX])
    more = len(partitions) - _NAMED_MAX
    return f"{names} and {more} more" if more > 0 else names
