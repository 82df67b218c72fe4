"""What a partition should remember of idempotent producers, in the plainest Python.

`judge` answers as the log should: a Kafka error code, or the base offset of a duplicate, or None
for a batch that is to be appended (and is then noted with `note`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kbroker.errors import ErrorCode

KEPT = 5
SEQUENCES = 2**31


@dataclass
class Producer:
    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first, last, base offset


@dataclass
class ProducerModel:
    producers: dict[int, Producer] = field(default_factory=dict)

    def judge(
        self, producer_id: int, epoch: int, sequence: int, count: int
    ) -> ErrorCode | int | None:
        known = self.producers.get(producer_id)
        if known is None:
            return None
        if epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > known.epoch:
            return None if sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        last = (sequence + count - 1) % SEQUENCES
        for first_kept, last_kept, base_offset in known.batches:
            if (first_kept, last_kept) == (sequence, last):
                return base_offset
        if known.batches and sequence != (known.batches[-1][1] + 1) % SEQUENCES:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def note(self, producer_id: int, epoch: int, sequence: int, count: int, base: int) -> None:
        known = self.producers.get(producer_id)
        if known is None or known.epoch != epoch:
            known = self.producers[producer_id] = Producer(epoch)
        known.batches.append((sequence, (sequence + count - 1) % SEQUENCES, base))
        del known.batches[:-KEPT]

    def only_last_batches(self) -> None:
        """What a snapshot keeps."""
        for known in self.producers.values():
            del known.batches[:-1]
