"""Transactional ids of another broker, Apache Kafka's say, whose logs are adopted.

Read from its `__transaction_state`: they say how a transaction ends that is open in a log. A
decided one gets its outcome, any other is aborted. Where the ids are adopted too, a transaction
that is not decided is fenced as by its timeout: else its producer, which knows nothing of this,
could go on here and commit the second half alone. Markers of the outcome are sent once more when
the broker has loaded the ids, to all partitions there are.

Not for several threads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.txn._images import encode_value
from kbroker.coordinator.txn.image import LIMITS, TransactionImage, fenced
from kbroker.coordinator.txn.records import (
    RecordError,
    decode_key,
    decode_value,
    encode_key,
    version_of,
)
from kbroker.coordinator.txn.states import PREPARED, State
from kbroker.log.adopted_ends import Ending
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from kbroker.protocol.record_batch import Record
from kbroker.types import TopicPartition

# Fences go by the first kind of clients: what the producers' kind is, no record says.
_FENCE_VERSION = 0


class AdoptedIds:
    """See the head of this file. `read` every partition first."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        # By partition of the state topic: an image, and the version of its record.
        self._images: defaultdict[int, dict[str, tuple[TransactionImage, int]]]
        self._images = defaultdict(dict)

    def read(self, partition: int, record: Record) -> None:
        """The last record of an id counts; one that a coordinator would skip is skipped."""
        images = self._images[partition]
        try:
            transactional_id = decode_key(record.key or b"")
            if record.value is None:
                images.pop(transactional_id, None)
            else:
                images[transactional_id] = decode_value(record.value), version_of(record.value)
        except RecordError:
            return

    def misplaced(self, partitions: int) -> str | None:
        """An id that a topic of so many partitions would have in another one."""
        for partition, images in self._images.items():
            for name in images:
                if partition_for(name, partitions) != partition:
                    return name
        return None

    @property
    def producer_id(self) -> int:
        """The highest there is, or -1."""
        found = (image for images in self._images.values() for image, _ in images.values())
        return max((max(each.producer_id, each.next_producer_id) for each in found), default=-1)

    def ending(self, partition: TopicPartition, producer_id: int) -> Ending | None:
        for images in self._images.values():
            for name, (image, _) in images.items():
                if image.producer_id != producer_id or partition not in image.partitions:
                    continue
                if image.state in PREPARED:
                    return Ending(image.state is State.PREPARE_COMMIT, image.epoch, name)
                return Ending(False, LIMITS.raised(image.epoch), name)
        return None

    def records(self, partition: TopicPartition) -> Sequence[Record]:
        if partition.topic != TRANSACTIONS_TOPIC:
            return []
        return [
            Record(
                encode_key(name),
                encode_value(fenced(image, _FENCE_VERSION, self._now_ms, raised=False), version),
                timestamp_ms=self._now_ms,
            )
            for name, (image, version) in self._images[partition.partition].items()
            if image.state is State.ONGOING
        ]
