"""GroupStore: what groups are, written to `__consumer_offsets` by the broker that leads there.

    GroupCoordinator      -> write_group, delete_group: one batch each, appended with acks=-1

The table (C) holds the committed offsets. A group's outbox brings its states in their order; where
a group was made anew under the same id (its partition was lost and came back), what the one before
still has to write is refused: a later incarnation is not written over. Leadership, loading and the
order of writes are the runtime's (`coordinator/runtime/store.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.group.group_records import encode_group, group_key
from kbroker.coordinator.runtime._shard_table import Written, partition_for
from kbroker.coordinator.runtime.machine import Table
from kbroker.coordinator.runtime.store import CoordinatorStore
from kbroker.errors import ErrorCode
from kbroker.metadata.image import OFFSETS_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.group.images import GroupImage
    from kbroker.coordinator.runtime.machine import Records
    from kbroker.coordinator.runtime.store import Loader
    from kbroker.replica._replica import Replica

NONE: Final = ErrorCode.NONE


class OffsetsTable(Table[Written], Protocol):
    """What the store asks of the table of offsets, `_groups.GroupTable`."""

    def delete_group(self, group_id: str, records: Records, written: Written) -> int: ...


class OffsetsStore(CoordinatorStore[Written]):
    """See the head of this file."""

    def __init__(
        self,
        table: OffsetsTable,
        loader: Loader,
        replica_of: Callable[[str, int], Replica | None],
        node_id: int,
        again: Callable[[Callable[[], None]], object] = lambda call: None,
    ) -> None:
        super().__init__(
            OFFSETS_TOPIC, "groups", table, loader, partition_for, replica_of, node_id, again
        )
        self._groups = table

    def write_group(
        self, image: GroupImage, incarnation: int, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append the group's record; `done` is called once, without any lock held."""
        record = (group_key(image.group_id), encode_group(image))
        self._write(
            image.group_id,
            incarnation,
            lambda partition, written: self._groups.append(partition, [record], written),
            Written(),
            done,
        )

    def write_records(
        self,
        group_id: str,
        incarnation: int,
        records: Records,
        appended: Callable[[ErrorCode], object],
        done: Callable[[ErrorCode], object],
    ) -> None:
        """Append records of a group of another kind as one batch. `appended` is called when they
        are in the log, or with the error why they are not; then `done` as of other writes."""
        is_in_log = False

        def logged() -> None:
            nonlocal is_in_log
            is_in_log = True
            appended(NONE)

        def ended(code: ErrorCode) -> None:
            if not is_in_log:
                appended(code)
            done(code)

        self._write(
            group_id,
            incarnation,
            lambda partition, written: self._groups.append(partition, records, written),
            Written(),
            ended,
            logged,
        )

    def delete_group(
        self, group_id: str, in_log: Callable[[], object], done: Callable[[ErrorCode], None]
    ) -> None:
        """Append tombstones for all of the group's offsets and for itself, it being the last."""
        self.delete_records(group_id, [(group_key(group_id), None)], in_log, done)

    def delete_records(
        self,
        group_id: str,
        tombstones: Records,
        in_log: Callable[[], object],
        done: Callable[[ErrorCode], object],
    ) -> None:
        """The same with the tombstones of a group of any kind."""
        written = Written()
        self._delete(
            group_id,
            lambda: self._groups.delete_group(group_id, tombstones, written),
            written,
            in_log,
            done,
        )

    def when_settled(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        """`done` is called once, when the followers have what was written of the group by now."""
        self._when_settled(group_id, Written(), done)
