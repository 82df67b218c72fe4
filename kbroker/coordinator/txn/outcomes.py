"""What follows from an outcome (Prepare*) that is in the log: its markers, and then Complete*.

    TransactionCoordinator -> mark -> markers of all partitions -> Complete*

If Complete* is not written it is written again, until this broker loses the partition. So it is
with markers that could not be sent. Each pause is longer than the one before, up to a second.

Retries, and what comes of a request to another broker, begin on threads that may not wait for a
log; a worker writes for them (`seams.py`). So it is with each callback that a thread of another
kind makes, such as one with a new producer id.

Any thread. Lock: the coordinator's.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn.image import NO_EPOCH, Limits, TransactionImage, marker_version
from kbroker.coordinator.txn.seams import RETRY_MS, MarkerOrder, longer
from kbroker.coordinator.txn.states import PREPARED, State
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.coordinator.txn._ids import Transaction
    from kbroker.coordinator.txn.seams import Done, Markers, OnWorker, TransactionLog
    from kbroker.errors import ErrorCode
    from kbroker.failures import Failures
    from kbroker.purgatory.timer import CallLater


class Write(Protocol):
    def __call__(
        self, transactional_id: str, transaction: Transaction, image: TransactionImage, done: Done
    ) -> None:
        """`done` is called once, also where the log raises."""


class Outcomes:
    """See the head of this file."""

    def __init__(
        self,
        lock: threading.Lock,
        known: Callable[[str], Transaction | None],
        log: TransactionLog,
        write: Write,
        markers: Markers,
        call_later: CallLater,
        on_worker: OnWorker,
        limits: Callable[[], Limits],
        now_ms: Callable[[], int],
        failures: Failures,
    ) -> None:
        """`known`: the transaction of an id; under the lock."""
        self._lock: Final = lock
        self._known: Final = known
        self._log: Final = log
        self._write: Final = write
        self._markers: Final = markers
        self._call_later: Final = call_later
        self._on_worker: Final = on_worker
        self._limits: Final = limits
        self._now_ms: Final = now_ms
        self._failures: Final = failures
        self._run: Final = 1 + secrets.randbits(62)
        self._numbers: Final = itertools.count(1)
        self.completing_again = 0

    def on_worker(self, transactional_id: str, call: Callable[[], object]) -> None:
        """Have it done by a thread that may wait for the id's log."""
        place = TopicPartition(TRANSACTIONS_TOPIC, self._log.partition_of(transactional_id))
        try:
            self._on_worker(place, call)
        except Exception as error:
            self._failures.note("beginning what waits for a log", error)
            self._call_later(RETRY_MS, partial(self.on_worker, transactional_id, call))

    def mark(
        self,
        transactional_id: str,
        transaction: Transaction,
        image: TransactionImage,
        pause_ms: int = RETRY_MS,
        *,
        may_wait: bool,
    ) -> None:
        """Send the markers of an outcome; the id is pending until Complete* is in the log.
        `pause_ms`: before it is tried again."""
        try:
            is_over = self._send_markers(transactional_id, transaction, image, may_wait=may_wait)
        except Exception as error:
            self._failures.note("sending a transaction's markers", error)
            is_over = False
        if not is_over:
            again = partial(
                self.mark, transactional_id, transaction, image, longer(pause_ms), may_wait=False
            )
            self._call_later(pause_ms, again)

    def go_on(self, transactional_id: str) -> None:
        """A handler without Python may have written an outcome, and not all that follows. Its
        request comes here; if that was lost, the next look for timeouts does. May wait for logs."""
        with self._lock:
            transaction = self._known(transactional_id)
            if transaction is None or not transaction.take_left():
                return
            image = transaction.image
        if image is not None and image.state in PREPARED:
            self.mark(transactional_id, transaction, image, may_wait=True)

    def _send_markers(
        self,
        transactional_id: str,
        transaction: Transaction,
        image: TransactionImage,
        *,
        may_wait: bool,
    ) -> bool:
        """False: it is to be tried again."""
        coordinator_epoch = self._log.coordinator_epoch(transactional_id, transaction.term)
        order = MarkerOrder(
            transactional_id,
            image.producer_id,
            image.epoch,
            coordinator_epoch,
            image.state is State.PREPARE_COMMIT,
            marker_version(image, self._limits()),
            image.partitions,
            self._run,
            next(self._numbers),
        )
        with self._lock:
            if self._known(transactional_id) is not transaction:
                return True  # another term's load sends them
            if coordinator_epoch == NO_EPOCH:
                return False  # it is about to be unloaded
            before, transaction.order = transaction.order, order
        if before is not None:
            self._markers.drop(lambda each: each is before)
        marked = partial(self._marked, transactional_id, transaction, order)
        if order.partitions:
            self._markers.send(order, marked, may_wait=may_wait)
        else:
            marked(may_wait)
        with self._lock:
            is_ours = self._known(transactional_id) is transaction
        if not is_ours:  # unloaded before the markers had the order
            self._markers.drop(lambda each: each is order)
        return True

    def _marked(
        self, transactional_id: str, transaction: Transaction, order: MarkerOrder, may_wait: bool
    ) -> None:
        with self._lock:
            before = transaction.image
            is_ours = self._known(transactional_id) is transaction
            if not is_ours or transaction.order is not order or before is None:
                return
            transaction.order = None
        image = decisions.complete(before, self._now_ms()).image
        if image is None:
            return
        complete = partial(self._complete, transactional_id, transaction, image)
        if may_wait:
            complete()
        else:
            self.on_worker(transactional_id, complete)

    def _complete(
        self,
        transactional_id: str,
        transaction: Transaction,
        image: TransactionImage,
        pause_ms: int = RETRY_MS,
    ) -> None:
        """`pause_ms`: before it is tried again."""
        completed = partial(self._completed, transactional_id, transaction, image, pause_ms)
        self._write(transactional_id, transaction, image, completed)

    def _completed(
        self,
        transactional_id: str,
        transaction: Transaction,
        image: TransactionImage,
        pause_ms: int,
        code: ErrorCode,
    ) -> None:
        with self._lock:
            if self._known(transactional_id) is not transaction:
                return
            if not code:
                transaction.become(image)
                transaction.fence_failed = False
                transaction.pending = False
                return
            # After NOT_COORDINATOR too: a log that is to lead in a new epoch answers so, and one
            # whose write failed. Where the id goes to another term, its unload ends the retries.
            self.completing_again += 1
        complete = partial(self._complete, transactional_id, transaction, image, longer(pause_ms))
        self._call_later(pause_ms, partial(self._complete_again, transactional_id, complete))

    def _complete_again(self, transactional_id: str, complete: Callable[[], None]) -> None:
        with self._lock:
            self.completing_again -= 1
        self.on_worker(transactional_id, complete)
