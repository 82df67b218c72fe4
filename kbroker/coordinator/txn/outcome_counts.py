"""What became of the transactions of a coordinator, since the start.

An outcome counts when it is in the log; one of no partition does not: a client that aborts what it
has not begun has lost nothing. Handlers without Python count those that they end beside the ids
(`_moves.pyx`). Changed under the coordinator's lock, read by any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.txn.states import Do, State

if TYPE_CHECKING:
    from kbroker.coordinator.txn._ids import Transaction, TransactionalIds
    from kbroker.coordinator.txn.decisions import Decision
    from kbroker.coordinator.txn.image import TransactionImage


class OutcomeCounts:
    """See the head of this file."""

    def __init__(self, ids: TransactionalIds) -> None:
        self._ids = ids
        self._committed = 0
        self._aborted = 0
        self.timed_out = 0

    @property
    def committed(self) -> int:
        return self._committed + self._ids.ended[0]

    @property
    def aborted(self) -> int:
        return self._aborted + self._ids.ended[1]

    def note(self, transaction: Transaction, image: TransactionImage, decision: Decision) -> None:
        """A decision whose image is in the log now."""
        if image.state is State.PREPARE_COMMIT:
            self._committed += 1
        elif image.state is State.PREPARE_ABORT and image.partitions:
            # A client that fences another one is answered with an error; a timeout has no client.
            timed_out = decision.do is Do.FENCE and not decision.code
            self._aborted += 1
            self.timed_out += timed_out
            transaction.count_abort(timed_out)
