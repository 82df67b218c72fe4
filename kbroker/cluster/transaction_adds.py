"""What this broker asks of transaction coordinators: may a producer write to these partitions?

Place in the flow: a produce (or TxnOffsetCommit) that begins a transaction in a partition waits
with a guard; here its partitions are verified at the coordinator of its transactional id, or added
to its transaction, by AddPartitionsToTxn; `done` gets an error for each partition.

    verify -> the queue of the id's coordinator -> one request with all that is queued -> done

A coordinator has one request at a time, and what comes meanwhile is queued by transactional id and
leaves together. A newer transaction of an id takes the place of an older one in that queue: of the
same epoch it is most likely its producer's next attempt, so the older one gets NETWORK_EXCEPTION;
of a higher epoch it has fenced the older one, which gets INVALID_PRODUCER_EPOCH. One of a lower
epoch gets that itself. A coordinator that is this broker is asked without a socket, and every id of
it by itself, since ids do not wait for each other there.

Where partitions are added (TV2) a coordinator that is still busy with the transaction before
answers CONCURRENT_TRANSACTIONS; it is asked again until `retry_max_ms` are over, since that is
shorter than a round trip to the producer. Most transactions are complete a few milliseconds later:
the first pause is 1 ms, and each is twice as long as the last, up to `retry_backoff_ms`.

Any thread; clock, timer and transport are given. Lock: `_lock` only, a leaf; nothing is called with
it. Bound: one transaction for each id in a queue, and callers wait with requests that are bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode
from kbroker.once import once
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.failures import Failures

RETRY_BACKOFF_MS: Final = "add.partitions.to.txn.retry.backoff.ms"
RETRY_MAX_MS: Final = "add.partitions.to.txn.retry.backoff.max.ms"
FIRST_PAUSE_MS: Final = 1


class AddedTransaction(NamedTuple):
    """One transaction in an AddPartitionsToTxn request from a broker."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    partitions: tuple[TopicPartition, ...]


# Of one transaction: an error for each partition, or one for all.
Verdict = ErrorCode | Mapping[TopicPartition, ErrorCode]
# By transactional id; or one error where the coordinator has answered nothing.
Answer = ErrorCode | Mapping[str, Verdict]
Errors = dict[TopicPartition, ErrorCode]
Done = Callable[[Errors], None]


class Coordinators(Protocol):
    """The way to transaction coordinators. Each callback comes once, on any thread."""

    def coordinator_of(self, transactional_id: str) -> int | None:
        """The broker that leads the id's partition of the state topic; None: none is known."""
        ...

    def is_local(self, node_id: int) -> bool: ...

    def ask(
        self,
        node_id: int,
        transactions: Sequence[AddedTransaction],
        done: Callable[[Answer], None],
    ) -> None: ...

    def later(self, delay_ms: int, transactional_id: str, call: Callable[[], None]) -> None:
        """On a thread that may wait for the log of the id's coordinator, if that is this broker."""
        ...


@dataclass(eq=False)
class _Asked:
    """What one caller waits for."""

    transaction: AddedTransaction
    done: Done
    since_ms: int
    pause_ms: int = FIRST_PAUSE_MS  # before it is asked again


@dataclass(eq=False)
class _Queue:
    """What one coordinator, or an id at this broker's own, is asked next."""

    waiting: dict[str, _Asked] = field(default_factory=dict)
    asks: bool = False  # a request is under way


class TransactionAdds:
    """See the head of this file."""

    def __init__(
        self,
        coordinators: Coordinators,
        clock: Clock,
        failures: Failures,
        retry_backoff_ms: Callable[[], int],
        retry_max_ms: Callable[[], int],
    ) -> None:
        """`failures` counts what callbacks raise; the two settings are read for each retry."""
        self._coordinators: Final = coordinators
        self._clock: Final = clock
        self._failures: Final = failures
        self._retry_backoff_ms: Final = retry_backoff_ms
        self._retry_max_ms: Final = retry_max_ms
        self._lock: Final = threading.Lock()
        self._queues: dict[tuple[int, str | None], _Queue] = {}
        self.replaced = 0

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Done,
    ) -> None:
        """`adds`: partitions that are not in the transaction yet are added to it (TV2)."""
        transaction = AddedTransaction(
            transactional_id, producer_id, producer_epoch, not adds, tuple(partitions)
        )
        self._enqueue(_Asked(transaction, done, self._clock.monotonic_ms()))

    def _enqueue(self, asked: _Asked) -> None:
        transaction = asked.transaction
        try:
            node_id = self._coordinators.coordinator_of(transaction.transactional_id)
            is_local = node_id is not None and self._coordinators.is_local(node_id)
        except Exception as error:  # on a timer's thread it would be lost
            self._failures.note("looking for a transaction coordinator", error)
            node_id = None
        if node_id is None:
            self._end(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        key = node_id, transaction.transactional_id if is_local else None
        loser: _Asked | None = None
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            before = queue.waiting.get(transaction.transactional_id)
            loser, code = _loser(before, asked)
            if loser is not None:
                self.replaced += 1
            if loser is not asked:
                queue.waiting[transaction.transactional_id] = asked
        if loser is not None:
            self._end(loser, code)
        self._ask_next(key)

    def _ask_next(self, key: tuple[int, str | None]) -> None:
        node_id, _ = key
        with self._lock:
            queue = self._queues.get(key)
            if queue is None or queue.asks:
                return
            if not queue.waiting:
                del self._queues[key]
                return
            asked, queue.waiting, queue.asks = queue.waiting, {}, True
        transactions = [each.transaction for each in asked.values()]
        answered = once(partial(self._answered, key, asked))
        try:
            self._coordinators.ask(node_id, transactions, answered)
        except Exception as error:
            self._failures.note("asking a transaction coordinator", error)
            answered(ErrorCode.NETWORK_EXCEPTION)

    def _answered(
        self, key: tuple[int, str | None], asked: Mapping[str, _Asked], answer: Answer
    ) -> None:
        with self._lock:
            self._queues[key].asks = False
        self._ask_next(key)  # what has waited goes first: callbacks may take long
        for transactional_id, each in asked.items():
            if isinstance(answer, ErrorCode):
                verdict: Verdict = answer
            else:  # a coordinator that leaves one out has said nothing of it
                verdict = answer.get(transactional_id, ErrorCode.NETWORK_EXCEPTION)
            self._end_or_retry(each, verdict)

    def _end_or_retry(self, asked: _Asked, verdict: Verdict) -> None:
        errors = _errors(asked.transaction, verdict)
        if (
            asked.transaction.verify_only
            or ErrorCode.CONCURRENT_TRANSACTIONS not in errors.values()
            or self._clock.monotonic_ms() - asked.since_ms >= self._retry_max_ms()
        ):
            self._end(asked, verdict)
            return
        try:
            transactional_id = asked.transaction.transactional_id
            again = partial(self._enqueue, asked)
            pause_ms = min(asked.pause_ms, self._retry_backoff_ms())
            asked.pause_ms *= 2
            self._coordinators.later(pause_ms, transactional_id, again)
        except Exception as error:
            self._failures.note("asking a transaction coordinator again", error)
            self._end(asked, verdict)

    def _end(self, asked: _Asked, verdict: Verdict) -> None:
        try:
            asked.done(_errors(asked.transaction, verdict))
        except Exception as error:  # others were asked with it
            self._failures.note("an answer of a transaction coordinator", error)


def _loser(before: _Asked | None, asked: _Asked) -> tuple[_Asked | None, ErrorCode]:
    """Which of two transactions of one id does not wait in the queue, and what it gets."""
    if before is None:
        return None, ErrorCode.NONE
    if before.transaction.producer_epoch == asked.transaction.producer_epoch:
        return before, ErrorCode.NETWORK_EXCEPTION
    if before.transaction.producer_epoch > asked.transaction.producer_epoch:
        return asked, ErrorCode.INVALID_PRODUCER_EPOCH
    return before, ErrorCode.INVALID_PRODUCER_EPOCH


def _errors(transaction: AddedTransaction, verdict: Verdict) -> Errors:
    """For each partition that was asked for; a fenced producer is one with an old epoch."""
    errors: Errors = {}
    for partition in transaction.partitions:
        if isinstance(verdict, ErrorCode):
            code = verdict
        else:
            code = verdict.get(partition, ErrorCode.NETWORK_EXCEPTION)
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        errors[partition] = code
    return errors
