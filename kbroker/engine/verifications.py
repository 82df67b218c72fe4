"""Produces that begin a transaction in a partition: the questions to coordinators, and the answers.

The request itself waits in C, with a guard for each batch (`apis/_produce_verify`). `serve` returns
to a handler with the questions; `TransactionAdds` asks them, and when every transaction that
the request waits for has its answer, the request goes on with an error or none for each batch.

Errors of a coordinator become those of Produce as in Apache Kafka: an error that is over soon is
NOT_ENOUGH_REPLICAS, which a client retries without asking for metadata; a version that adds
partitions (TV2) knows CONCURRENT_TRANSACTIONS; one that does not know TRANSACTION_ABORTABLE gets
INVALID_TXN_STATE. Any thread; each request has a lock of its own, a leaf.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.errors import ErrorCode
from kbroker.once import once

if TYPE_CHECKING:
    from kbroker.engine._hot import Unverified
    from kbroker.types import TopicPartition

Errors = dict["TopicPartition", ErrorCode]

ADDS_FROM: Final = 12
ABORTABLE_FROM: Final = 11
_OVER_SOON: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class WaitingProduces(Protocol):
    """The hot path, as the owner of the requests."""

    def coordinator_answered(self, number: int, errors: list[tuple[int, int]]) -> None: ...


class Verify(Protocol):
    """`TransactionAdds.verify`."""

    def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[Errors], None],
    ) -> None: ...


def produce_error(code: ErrorCode, version: int) -> ErrorCode:
    """What a Produce of that version is answered."""
    if code in _OVER_SOON:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


class _Waiting:
    """One request, until the last of its transactions is answered."""

    def __init__(self, hot: WaitingProduces, asked: Unverified) -> None:
        number, version, places, transactions = asked
        self._hot = hot
        self._number = number
        self._version = version
        self._lock = threading.Lock()
        self._left = len(transactions)
        lost = int(ErrorCode.NOT_ENOUGH_REPLICAS), int(ErrorCode.NETWORK_EXCEPTION)
        self._errors = [lost] * places

    def answered(
        self, partitions: Sequence[TopicPartition], places: Sequence[list[int]], errors: Errors
    ) -> None:
        with self._lock:
            for partition, of_partition in zip(partitions, places, strict=True):
                code = errors.get(partition, ErrorCode.NETWORK_EXCEPTION)
                for place in of_partition:
                    self._errors[place] = int(produce_error(code, self._version)), int(code)
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._hot.coordinator_answered(self._number, self._errors)


class Verifications:
    """See the head of this file."""

    def __init__(self, hot: WaitingProduces, verify: Verify | None = None) -> None:
        """`verify`: None where there is no coordinator to ask."""
        self._hot = hot
        self._verify = verify

    def ask(self, asked: Unverified) -> None:
        """On the thread of the handler that `serve` came back to. Where a question raises, its
        transaction counts as not answered; the first error is raised when all are asked."""
        _, version, _, transactions = asked
        waiting = _Waiting(self._hot, asked)
        raised: Exception | None = None
        for transactional_id, producer_id, epoch, partitions, places in transactions:
            done = once(partial(waiting.answered, partitions, places))
            if self._verify is None:
                done(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
                continue
            try:
                self._verify(
                    transactional_id,
                    producer_id,
                    epoch,
                    partitions,
                    adds=version >= ADDS_FROM,
                    done=done,
                )
            except Exception as error:
                done({})
                raised = raised or error
        if raised is not None:
            raise raised
