"""Which transactions were aborted, are open, or hold consumers: for the metrics topic.

A coordinator knows the transactional ids and their clients, a leader the producer ids that hold the
last stable offset of its partitions. Any thread; a coordinator's lock is held by pieces.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kbroker.metrics.samples import OPEN_MAX, OPEN_MIN_S
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.open_transactions import Holder
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.replica._replica import Replica
    from kbroker.security.session import Session


class Client(NamedTuple):
    """None where the coordinator does not know it."""

    client_id: str | None = None
    client_host: str | None = None


class AbortedTransactions(NamedTuple):
    """Of one transactional id, since its coordinator has loaded it."""

    transactional_id: str
    aborted: int
    timed_out: int
    client: Client


class OpenTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    open_s: float
    timeout_ms: int
    partitions: int
    client: Client


class HeldOffset(NamedTuple):
    """A partition whose last stable offset a transaction holds."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_stable_offset: int
    open_s: float
    waiting_records: int


class SeenTransactions(NamedTuple):
    aborted: list[AbortedTransactions]
    is_open: list[OpenTransaction]
    held: list[HeldOffset]


NONE_SEEN = SeenTransactions([], [], [])


def seen(
    coordinator: TransactionCoordinator | None,
    holders: list[Holder],
    replica_of: Callable[[TopicPartition], Replica | None],
    now_ms: int,
) -> SeenTransactions:
    """`coordinator`: None where this broker coordinates nothing."""
    aborted, is_open = ([], []) if coordinator is None else _of_ids(coordinator, now_ms)
    return SeenTransactions(aborted, is_open, _held(holders, replica_of))


def _client(session: Session | None) -> Client:
    return Client() if session is None else Client(session.client_id, session.client_host)


def _of_ids(
    coordinator: TransactionCoordinator, now_ms: int
) -> tuple[list[AbortedTransactions], list[OpenTransaction]]:
    from kbroker.coordinator.txn.states import UNFINISHED  # of brokers that coordinate

    aborted: list[AbortedTransactions] = []
    is_open: list[OpenTransaction] = []
    for piece in coordinator.pieces():
        for name, transaction in piece:
            aborts = transaction.aborts
            if aborts[0]:
                aborted.append(AbortedTransactions(name, *aborts, _client(transaction.client)))
            image = transaction.image if transaction.state in UNFINISHED else None
            if image is None or (open_s := (now_ms - image.start_ms) / 1000) < OPEN_MIN_S:
                continue
            is_open.append(
                OpenTransaction(
                    name, image.producer_id, image.epoch, image.state.label, open_s,
                    image.timeout_ms, len(image.partitions), _client(transaction.client),
                )
            )  # fmt: skip
    longest = heapq.nlargest(OPEN_MAX, is_open, key=lambda each: each.open_s)
    return aborted, longest


def _held(
    holders: list[Holder], replica_of: Callable[[TopicPartition], Replica | None]
) -> list[HeldOffset]:
    found: list[HeldOffset] = []
    longest = heapq.nlargest(OPEN_MAX, holders, key=lambda each: each.open_s)
    for partition, transaction, open_s in longest:
        replica = replica_of(partition)
        if replica is None or open_s < OPEN_MIN_S:
            continue
        first = transaction.first_offset
        waiting = replica.statistics()["high_watermark"] - first
        if waiting > 0:
            found.append(
                HeldOffset(
                    partition, transaction.producer_id, transaction.producer_epoch, first, open_s,
                    waiting,
                )
            )  # fmt: skip
    return found
