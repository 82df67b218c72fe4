"""What became of one record in a share group, as `__share_group_state` has it: for `share explain`.

The records of a share-partition's state are applied in their order, with the share coordinator's
own rules, and each step that concerns the offset is kept: it is available again after so many
deliveries, acknowledged or archived, or the start has passed it. The coordinator deletes records
that nothing needs any more, so the steps of long ago are those of the oldest snapshot. A delivery
itself is in no record: a count is written when a record is available again, or done with.

Pure: no client, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.coordinator.share.images import NO_START, DeliveryState
from kbroker.coordinator.share.records import (
    RecordError,
    Snapshot,
    decode_key,
    decode_value,
)

if TYPE_CHECKING:
    from kbroker.coordinator.share.images import SharePartition
    from kbroker.coordinator.share.records import Value
    from kbroker.protocol.record_batch import Record

BEGINS: Final = "state begins"
STARTS: Final = "start found"
PASSED: Final = "start passed it"
DELETED: Final = "state deleted"
_NAMES: Final = {
    DeliveryState.AVAILABLE: "available again",
    DeliveryState.ACKNOWLEDGED: "acknowledged",
    DeliveryState.ARCHIVING: "archiving",
    DeliveryState.ARCHIVED: "archived",
}


class Batch(NamedTuple):
    """Records that were written together, and when."""

    time_ms: int
    records: list[Record]


class Step(NamedTuple):
    """`offset`: of the record in the state topic. `start`: of the share-partition from then on."""

    time_ms: int
    offset: int
    event: str
    start: int
    delivery_count: int | None = None

    def document(self) -> dict[str, Any]:
        return {
            "time_ms": self.time_ms,
            "event": self.event,
            "start_offset": None if self.start == NO_START else self.start,
            "delivery_count": self.delivery_count,
            "state_offset": self.offset,
        }


class Life(NamedTuple):
    """`state` is a DeliveryState; None: nothing is kept of the record."""

    steps: list[Step]
    start: int = NO_START
    state: int | None = None
    delivery_count: int = 0


def life_of(batches: Iterable[Batch], key: SharePartition, offset: int) -> Life | None:
    """None: no record is of this share-partition."""
    now = Life([])
    kept: tuple[int, int] | None = None  # snapshot epoch and state epoch
    for batch in batches:
        for record in batch.records:
            value, is_own = _value_of(record, key)
            if not is_own:
                continue
            where = batch.time_ms, record.offset
            if value is None:
                now.steps.append(Step(*where, DELETED, NO_START))
                now, kept = Life(now.steps), None
                continue
            if isinstance(value, Snapshot):
                is_new = kept is None or value.state_epoch != kept[1]
                kept = value.snapshot_epoch, value.state_epoch
                if is_new:
                    now = Life(now.steps)
                    now.steps.append(Step(*where, BEGINS, value.start_offset))
            elif kept is None or value.snapshot_epoch != kept[0]:
                continue
            now = _after(now, value, offset, where)
    return now if now.steps else None


def _value_of(record: Record, key: SharePartition) -> tuple[Value | None, bool]:
    try:
        kind, found = decode_key(record.key or b"")
        if found != key:
            return None, False
        return (None if record.value is None else decode_value(kind, record.value)), True
    except RecordError:
        return None, False  # of a version that is not known here, or damaged


def _after(before: Life, value: Value, offset: int, where: tuple[int, int]) -> Life:
    """A step for each change that concerns the offset."""
    start = before.start if value.start_offset == NO_START else value.start_offset
    now = before._replace(start=start)
    if before.start == NO_START != start:
        now.steps.append(Step(*where, STARTS, start))
    for batch in value.batches:
        if not batch.first_offset <= offset <= batch.last_offset:
            continue
        known = (now.delivery_count, -1 if now.state is None else now.state)
        if (batch.delivery_count, batch.state) > known:
            now = now._replace(state=batch.state, delivery_count=batch.delivery_count)
            name = _NAMES[DeliveryState(batch.state)]
            now.steps.append(Step(*where, name, start, batch.delivery_count))
    if start > offset >= before.start and before.start != NO_START:
        now.steps.append(Step(*where, PASSED, start))
    return now


def batches_of(pieces: Iterable[bytes], key: SharePartition) -> Iterator[Batch]:
    """Those that may have a record of the share-partition; what others say is not unpacked."""
    from kbroker.peer.log_reading import headers
    from kbroker.protocol.record_batch import CODEC_MASK, CONTROL, decode_batches

    named = key.topic_id.bytes
    for piece in pieces:
        for header in headers(piece):
            if header.attributes & CONTROL:
                continue
            data = piece[header.begin : header.end]
            if header.attributes & CODEC_MASK or named in data:
                for batch in decode_batches(data):
                    yield Batch(header.time_ms, list(batch.records))
