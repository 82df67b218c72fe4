"""How transactions end that are open where a saved log ends.

The broker that made the backup looked for their markers after that end; one that it found decides.
Otherwise the saved log of transactional ids does, as for any log that is adopted: it was read after
the ends of all other logs, so a transaction that it knows as open is open in all of them.

Not for several threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbroker.backup.manifest import Outcome
from kbroker.coordinator.txn.adopted_ids import AdoptedIds
from kbroker.log.adopted_ends import Ending
from kbroker.protocol.record_batch import Record
from kbroker.types import TopicPartition


class KnownEnds:
    """The ids of one adoption; see `AdoptedIds`."""

    def __init__(self, now_ms: int, outcomes: Mapping[TopicPartition, Sequence[Outcome]]) -> None:
        self._ids = AdoptedIds(now_ms)
        self._outcomes = {
            (name, each.producer_id): each for name, some in outcomes.items() for each in some
        }

    def read(self, partition: int, record: Record) -> None:
        self._ids.read(partition, record)

    def misplaced(self, partitions: int) -> str | None:
        return self._ids.misplaced(partitions)

    @property
    def producer_id(self) -> int:
        return self._ids.producer_id

    def ending(self, partition: TopicPartition, producer_id: int) -> Ending | None:
        known = self._outcomes.get((partition, producer_id))
        if known is not None:
            return Ending(known.committed, known.epoch, None)
        return self._ids.ending(partition, producer_id)

    def records(self, partition: TopicPartition) -> Sequence[Record]:
        return self._ids.records(partition)
