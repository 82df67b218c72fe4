"""Steps of a streams group: its records, its timers, and the number that C has of it.

A step writes the changes of a draft (`consumer_group/record_steps.py`), in parts where it is large.
C has a number of the group that changes with each draft: a commit that was checked here is written
by C under that number, or is checked again, so no commit is written after the task was taken from
its member.

A streams group that takes the place of an empty classic one removes that one's record with the
first batch of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kbroker.coordinator.consumer_group.parts import parts_of
from kbroker.coordinator.consumer_group.record_steps import GroupAround, Record, RecordSteps
from kbroker.coordinator.group.group_records import group_key
from kbroker.coordinator.group.images import GroupImage as ClassicImage
from kbroker.coordinator.group.states import GroupState as ClassicState
from kbroker.coordinator.streams_group.images import Kind
from kbroker.coordinator.streams_group.records import record_of, records_of
from kbroker.coordinator.streams_group.state import Draft, StreamsGroupState

_GENERATION_MAX = 2**31 - 1


class StreamsSteps(RecordSteps[StreamsGroupState]):
    """See the module. `StreamsGroup` adds what is decided."""

    __slots__ = ("_generation", "_instead_of")

    def __init__(
        self,
        group_id: str,
        around: GroupAround,
        incarnation: int,
        instead_of: ClassicImage | None = None,
    ) -> None:
        super().__init__(group_id, around, incarnation)
        self._instead_of = instead_of  # while its record is there
        self._generation = 1  # that C has; another one after each change

    @property
    def took_place_of(self) -> ClassicImage | None:
        """The classic group for which it was made, as long as that one's record is there."""
        return self._instead_of

    def _new_state(self) -> StreamsGroupState:
        return StreamsGroupState()

    def _draft(self) -> Draft:
        return Draft(self._state)

    def _parts(self, draft: Draft) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        return parts_of(draft, self.group_id, self._bytes_of, first=Kind.GROUP)

    def _bytes_of(self, change: Any) -> int:
        key, value = record_of(self.group_id, change)
        return len(key) + len(value or b"")

    def _records(self, changes: Iterable[Any]) -> list[Record]:
        return records_of(self.group_id, changes)

    def _replaces(self) -> list[Record]:
        return [] if self._instead_of is None else [(group_key(self.group_id), None)]

    def _in_log(self) -> None:
        self._instead_of = None

    def _follow(self, changes: Iterable[Any]) -> None:
        for kind, key, _ in changes:
            if kind in (Kind.MEMBER, Kind.CURRENT):
                if key in self._state.members:
                    self._session_begun(key)
                else:
                    self._timers.end(key)
        self._publish()

    def _session_begun(self, member_id: str) -> None:
        """A member that is to give tasks up has its rebalance timeout for it."""
        self._timers.follow(
            member_id,
            self._state.current_of(member_id),
            self._state.members[member_id].rebalance_timeout_ms,
            is_classic=False,
        )

    def _publish(self) -> None:
        """C writes commits under this number from now on."""
        self._generation = self._generation % _GENERATION_MAX + 1
        view = self._around.view
        try:
            if self._state.exists:
                state = ClassicState.STABLE if self._state.members else ClassicState.EMPTY
                view.publish_members(
                    self.group_id, state=state, generation=self._generation, members=()
                )
                return
        except Exception as error:
            self._around.failures.note("showing a streams group", error)
        view.remove_members(self.group_id)
