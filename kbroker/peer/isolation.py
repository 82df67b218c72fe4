"""Reading committed records only: which batches of a fetch belong to aborted transactions.

A broker that is asked so answers up to the last stable offset, below which every transaction has
ended, and names the aborted ones: producer id and first offset. Such a producer's transactional
batches are none of the reader's from that offset to its next abort marker, a control batch.

One `Aborted` for each partition of each answer: the list names whatever overlaps that answer. It is
given its batches in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kbroker.protocol.record_batch import RecordBatch

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_ABORT: Final = (0).to_bytes(2, "big")  # the second half of a marker's key, after its version


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class Aborted:
    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._ahead = sorted(transactions, key=lambda one: one.first_offset, reverse=True)
        self._producers: set[int] = set()  # whose transaction the next batches are in

    def holds(self, batch: RecordBatch) -> bool:
        """Whether the batch's records were never committed."""
        while self._ahead and self._ahead[-1].first_offset <= batch.last_offset:
            self._producers.add(self._ahead.pop().producer_id)
        if batch.control:
            if batch.records and (batch.records[0].key or b"")[2:4] == _ABORT:
                self._producers.discard(batch.producer_id)
            return False
        return batch.transactional and batch.producer_id in self._producers
