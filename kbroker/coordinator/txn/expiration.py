"""The end of transactional ids that were not used for `transactional.id.expiration.ms`.

Those of a partition are forgotten together, by tombstones in one batch. Such an id is pending until
they are in the log, as with any write of it. On the scheduler, in steps; the lock is that of the
coordinator, around its ids.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.txn import decisions
from kbroker.coordinator.txn.states import Do
from kbroker.errors import ErrorCode
from kbroker.once import once

if TYPE_CHECKING:
    from kbroker.coordinator.txn._ids import Transaction, TransactionalIds
    from kbroker.coordinator.txn.seams import TransactionLog
    from kbroker.failures import Failures

# Ids that one batch forgets: far below max.message.bytes with ids of common lengths.
TOMBSTONES_MAX: Final = 500


class Expiration:
    """See the head of this file."""

    def __init__(
        self,
        ids: TransactionalIds,
        lock: threading.Lock,
        log: TransactionLog,
        failures: Failures,
    ) -> None:
        self._ids = ids
        self._lock = lock
        self._log = log
        self._failures = failures

    def expire(
        self, pieces: Iterable[Sequence[tuple[str, Transaction]]], before_ms: int
    ) -> Iterator[None]:
        """Forget those of all `pieces` that were not used since."""
        by_term: dict[tuple[int, int], list[str]] = {}
        for known in pieces:
            for transactional_id, transaction in known:
                if transaction.unused_since(before_ms):
                    place = self._log.partition_of(transactional_id), transaction.term
                    by_term.setdefault(place, []).append(transactional_id)
            yield
        for (_, term), names in by_term.items():
            for at in range(0, len(names), TOMBSTONES_MAX):
                self._forget(names[at : at + TOMBSTONES_MAX], term, before_ms)
                yield

    def _forget(self, names: Sequence[str], term: int, before_ms: int) -> None:
        gone: list[tuple[str, Transaction]] = []
        with self._lock:
            for name in names:
                transaction = self._ids.get(name)
                if transaction is None or not transaction.claim():
                    continue
                if transaction.term == term and _may_expire(transaction, before_ms):
                    gone.append((name, transaction))
                else:
                    transaction.pending = False
        if not gone:
            return
        forgotten = once(partial(self._forgotten, gone))
        try:
            self._log.forget([name for name, _ in gone], term, forgotten)
        except Exception as error:
            self._failures.note("forgetting transactional ids", error)
            forgotten(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _forgotten(self, gone: Sequence[tuple[str, Transaction]], code: ErrorCode) -> None:
        with self._lock:
            for name, transaction in gone:
                if not code and self._ids.get(name) is transaction:
                    self._ids.drop(name)
                else:
                    transaction.pending = False


def _may_expire(transaction: Transaction, before_ms: int) -> bool:
    image = transaction.image
    if image is None or not transaction.unused_since(before_ms):
        return False
    return decisions.expire(image).do is Do.FORGET
