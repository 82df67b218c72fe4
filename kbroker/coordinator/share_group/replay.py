"""One load of the share groups in a partition of `__consumer_offsets`.

Records are applied one after the other to the state of their group, as they were when the group
made them. A record that cannot be read is the caller's to leave out: it costs that record alone. A
group without a record of its epoch is not there, unless it has offsets and no members.

The loader's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.coordinator.share_group.images import Kind
from kbroker.coordinator.share_group.records import change_of, decode_key, records_of
from kbroker.coordinator.share_group.state import ShareGroupState

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.machine import Record


class ShareReplay:
    """See the module. `load` is given the groups at the end."""

    def __init__(self, load: Callable[[Mapping[str, ShareGroupState]], object]) -> None:
        self._load = load
        self._states: dict[str, ShareGroupState] = {}
        self._offsets: dict[str, int] = {}

    def record(self, record: Record) -> bool:
        key = decode_key(record.key)
        if key is None:
            return False
        change = change_of(key, record.value)
        state = self._states.get(key.group_id)
        if state is None:
            if change.value is None:
                return True
            state = self._states[key.group_id] = ShareGroupState()
        state.apply(change)
        self._offsets[key.group_id] = record.offset
        if change.kind == Kind.GROUP and change.value is None:
            del self._states[key.group_id]
        return True

    def loaded(self) -> None:
        found = {
            group_id: state
            for group_id, state in self._states.items()
            if state.group is not None or (state.has_state_record and not state.members)
        }
        for state in found.values():
            state.drop_orphans()
        self._load(found)

    # --- where a group of another kind has the id -------------------------------------------------

    @property
    def last_offsets(self) -> Mapping[str, int]:
        """Of the last record of each group that is there."""
        return {id_: self._offsets[id_] for id_, state in self._states.items() if state.exists}

    def leave_out(self, group_id: str) -> list[tuple[bytes, bytes | None]]:
        """The group is not to be there; the tombstones of its records."""
        return records_of(group_id, self._states.pop(group_id).tombstones())
