"""Counts of the outcomes of a coordinator's transactions since the start, and of ids that abort.

An id that aborts has counts of its own, until IDS_MAX others have aborted after it; its next abort
is its first one again. An outcome counts when it is in the log. An abort of no partition does not
count: such a client has lost no record.

Lock: one, a leaf. Any thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.txn.states import Do, State

if TYPE_CHECKING:
    from kbroker.coordinator.txn.decisions import Decision
    from kbroker.coordinator.txn.image import TransactionImage

IDS_MAX: Final = 1_000


class Aborts(NamedTuple):
    """Of one id. `timed_out`: of them, those that were open for longer than their timeout."""

    aborted: int = 0
    timed_out: int = 0


NO_ABORTS: Final = Aborts()


class OutcomeCounts:
    """See the head of this file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[str, Aborts] = {}  # the one that aborted last at the end
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0

    def note(self, transactional_id: str, image: TransactionImage, decision: Decision) -> None:
        """A decision whose image is in the log now."""
        if image.state is State.PREPARE_COMMIT:
            with self._lock:
                self.committed += 1
        elif image.state is State.PREPARE_ABORT and image.partitions:
            # A client that fences another one is answered with an error; a timeout has no client.
            self._abort(transactional_id, decision.do is Do.FENCE and not decision.code)

    def _abort(self, transactional_id: str, timed_out: bool) -> None:
        with self._lock:
            self.aborted += 1
            self.timed_out += timed_out
            before = self._by_id.pop(transactional_id, NO_ABORTS)
            after = Aborts(before.aborted + 1, before.timed_out + timed_out)
            self._by_id[transactional_id] = after
            if len(self._by_id) > IDS_MAX:
                del self._by_id[next(iter(self._by_id))]

    def aborts(self) -> list[tuple[str, Aborts]]:
        with self._lock:
            return list(self._by_id.items())
