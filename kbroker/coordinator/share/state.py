"""The state of one share-partition: a snapshot with the updates after it.

    snapshot -> ShareState.of        update -> apply

Nothing else changes a state, so the log is the state: a load applies the same values in the same
order (invariant K7). An update counts only after a snapshot of its snapshot epoch: one of another
epoch is of a log from elsewhere, and changes nothing.

No lock of its own: it belongs to its partition's worker (`coordinator.py`), or to one load.
"""

from __future__ import annotations

from typing import Self

from kbroker.coordinator.share.batches import merge, prune, put
from kbroker.coordinator.share.images import NO_EPOCH, NO_START, StateBatch
from kbroker.coordinator.share.records import Snapshot, Update, Value


class ShareState:
    """See the module. Two are equal if they say the same."""

    __slots__ = (
        "batches", "created_ms", "delivery_complete_count", "leader_epoch", "log_offset",
        "snapshot_epoch", "start_offset", "state_epoch", "updates", "written_ms",
    )  # fmt: skip

    def __init__(self, snapshot: Snapshot, log_offset: int) -> None:
        """`log_offset`: all of the state is in the log from there on."""
        self.log_offset = log_offset
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.created_ms = snapshot.created_ms
        self.written_ms = snapshot.written_ms
        self.batches: list[StateBatch] = merge(snapshot.batches, snapshot.start_offset)
        self.updates = 0  # since the snapshot

    @classmethod
    def after(cls, before: Self | None, value: Value, log_offset: int) -> Self | None:
        """The state when this value is in the log there; None: there is none."""
        if isinstance(value, Snapshot):
            return cls(value, log_offset)
        if before is not None and value.snapshot_epoch == before.snapshot_epoch:
            before._apply(value)
        return before

    def _apply(self, update: Update) -> None:
        if update.leader_epoch != NO_EPOCH:
            self.leader_epoch = update.leader_epoch
        if update.start_offset != NO_START:
            self.start_offset = update.start_offset
        self.delivery_complete_count = update.delivery_complete_count
        for each in update.batches:
            put(self.batches, each)
        prune(self.batches, self.start_offset)
        self.updates += 1

    def snapshot(self, now_ms: int) -> Snapshot:
        """The next one of this state."""
        return Snapshot(
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self.created_ms,
            now_ms,
            tuple(self.batches),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShareState):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _values(self) -> tuple[object, ...]:
        return (
            self.snapshot_epoch, self.state_epoch, self.leader_epoch, self.start_offset,
            self.delivery_complete_count, self.updates, self.batches,
        )  # fmt: skip
