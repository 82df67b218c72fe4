"""One load of the consumer groups in a partition of `__consumer_offsets`.

Records are applied one after the other to the state of their group, as they were when the group
made them. A record that cannot be read is the caller's to leave out: it costs that record alone. A
group without a record of its epoch is not there; what is left of it is dropped.

The loader's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.coordinator.consumer_group.images import Change, Kind
from kbroker.coordinator.consumer_group.records import change_of, records_of
from kbroker.coordinator.consumer_group.state import GroupState
from kbroker.coordinator.group.consumer_records import decode_key

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.machine import Record


class ConsumerReplay:
    """See the module. `load` is given the groups at the end."""

    def __init__(self, load: Callable[[Mapping[str, GroupState]], object]) -> None:
        self._load = load
        self._states: dict[str, GroupState] = {}
        self._offsets: dict[str, int] = {}

    def record(self, record: Record) -> bool:
        key = decode_key(record.key)
        if key is None:
            return False
        self.apply(key.group_id, change_of(key, record.value))
        self._offsets[key.group_id] = record.offset
        return True

    def apply(self, group_id: str, change: Change) -> None:
        state = self._states.get(group_id)
        if state is None:
            if change.value is None:
                return
            state = self._states[group_id] = GroupState()
        state.apply(change)
        if change.kind is Kind.GROUP and change.value is None:
            del self._states[group_id]

    @property
    def states(self) -> dict[str, GroupState]:
        """Of the groups that are there."""
        found = {group_id: state for group_id, state in self._states.items() if state.exists}
        for state in found.values():
            state.drop_orphans()
        return found

    def loaded(self) -> None:
        self._load(self.states)

    # --- where a group of another kind has the id -------------------------------------------------

    @property
    def last_offsets(self) -> Mapping[str, int]:
        """Of the last record of each group that is there."""
        return {id_: self._offsets[id_] for id_, state in self._states.items() if state.exists}

    def leave_out(self, group_id: str) -> list[tuple[bytes, bytes | None]]:
        """The group is not to be there; the tombstones of its records."""
        return records_of(group_id, self._states.pop(group_id).tombstones())
