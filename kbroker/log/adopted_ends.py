"""How transactions end that are open in a log which is adopted.

Their producers are of another cluster and will not end them here. So each gets its marker at the
end of the copy: that of the outcome which its coordinator had decided, else that of an abort. Pure;
any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from kbroker.log.engine._results import ProducerEntry
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.types import TopicPartition

_KEY, _VALUE = struct.Struct(">hh"), struct.Struct(">hi")
_VERSION: Final = 0
_ABORT, _COMMIT = 0, 1


class Ending(NamedTuple):
    """Of a transaction. `epoch`: of its marker; `transactional_id`: None where it is unknown."""

    committed: bool
    epoch: int
    transactional_id: str | None


class Ends(Protocol):
    """What the coordinators of the other broker knew."""

    def ending(self, partition: TopicPartition, producer_id: int) -> Ending | None:
        """None: no transactional id has a transaction of this producer there."""
        ...

    def records(self, partition: TopicPartition) -> Sequence[Record]:
        """What the log of transactional ids goes on with."""
        ...


class Ended(NamedTuple):
    """A transaction that was open from an offset on, and its marker's offset."""

    producer_id: int
    transactional_id: str | None
    first_offset: int
    marker_offset: int
    committed: bool


class End(NamedTuple):
    """Batches that follow the log's last one."""

    data: bytes
    ended: tuple[Ended, ...]


def end_of(
    partition: TopicPartition,
    end_offset: int,
    leader_epoch: int,
    is_open: Sequence[ProducerEntry],
    ends: Ends,
    now_ms: int,
) -> End:
    """Of a log that ends at `end_offset`. `is_open`: producers whose transaction is."""
    batches: list[bytes] = []
    ended: list[Ended] = []
    for entry in is_open:
        known = ends.ending(partition, entry.producer_id)
        ending = known or Ending(False, entry.producer_epoch, None)
        offset = end_offset + len(batches)
        record = Record(
            _KEY.pack(_VERSION, _COMMIT if ending.committed else _ABORT),
            _VALUE.pack(_VERSION, max(0, entry.coordinator_epoch)),
            timestamp_ms=now_ms,
        )
        batches.append(
            encode_batch(
                [record],
                producer_id=entry.producer_id,
                producer_epoch=ending.epoch,
                base_offset=offset,
                leader_epoch=leader_epoch,
                transactional=True,
                control=True,
            )
        )
        ended.append(
            Ended(
                entry.producer_id,
                ending.transactional_id,
                entry.transaction_first_offset,
                offset,
                ending.committed,
            )
        )
    for record in ends.records(partition):
        offset = end_offset + len(batches)
        batches.append(encode_batch([record], base_offset=offset, leader_epoch=leader_epoch))
    return End(b"".join(batches), tuple(ended))
