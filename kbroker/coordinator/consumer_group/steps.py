"""Steps of a consumer group: its records, its timers, and what C has of it.

A step writes the changes of a draft (`record_steps.py`); or, where the last member that speaks the
consumer protocol goes, all that turns the group into a classic one, as one batch.

C has a number of the group that changes with each draft. Under it C answers heartbeats that change
nothing (`beats.py`); every other request of a member comes here. A commit that was checked here is
written by C under that number, or is checked again (`ConsumerGroup.admit_commit`). So no commit is
written after the partition was taken from its member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.consumer_group.beats import Beats
from kbroker.coordinator.consumer_group.images import Change, Kind, MemberImage
from kbroker.coordinator.consumer_group.parts import parts_of
from kbroker.coordinator.consumer_group.record_steps import (
    FAILED,
    GroupAround,
    Record,
    RecordSteps,
    Write,
)
from kbroker.coordinator.consumer_group.records import records_of
from kbroker.coordinator.consumer_group.state import Draft, GroupState
from kbroker.coordinator.group.group_records import encode_group, group_key
from kbroker.coordinator.group.states import GroupState as ClassicState
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.beats import BeatsInC
    from kbroker.coordinator.consumer_group.drafts import DraftOf
    from kbroker.coordinator.consumer_group.messages import AnswerHeartbeat, HeartbeatAnswer
    from kbroker.coordinator.group.departures import Departures
    from kbroker.coordinator.group.images import GroupImage as ClassicImage

# A write that got one of these gets it again.
_NEVER_WRITTEN: Final = (ErrorCode.MESSAGE_TOO_LARGE, FAILED)
_GENERATION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Around(GroupAround):
    """What a consumer group needs of the broker around it."""

    beats: BeatsInC
    departures: Departures
    turned: Callable[[Steps, ClassicImage], object]  # a classic group takes its place


class _Turn(Write):
    """The records with which the group becomes a classic one."""

    __slots__ = ("becomes",)

    def __init__(
        self, changes: Sequence[Change], undo: Sequence[Change], becomes: ClassicImage
    ) -> None:
        super().__init__(changes, undo)
        self.becomes = becomes


class Steps(RecordSteps[GroupState]):
    """See the module. `ConsumerGroup` adds what is decided."""

    __slots__ = ("_beats", "_becomes", "_cannot_turn", "_generation", "_instead_of", "_turning")

    _around: Around

    def __init__(
        self,
        group_id: str,
        around: Around,
        incarnation: int,
        instead_of: ClassicImage | None = None,
    ) -> None:
        """`instead_of`: a classic group, whose record is removed before all else is written, as
        one batch with its members here."""
        super().__init__(group_id, around, incarnation)
        self._instead_of = instead_of  # while its record is there
        self._becomes: ClassicImage | None = None  # decided in this step
        self._turning = False  # its record is being written
        self._cannot_turn = False  # the log does not take that record
        self._generation = 1  # that C has; another one after each change
        self._beats: Final = Beats(group_id, around.beats)

    @property
    def took_place_of(self) -> ClassicImage | None:
        """The classic group for which it was made, as long as that one's record is there."""
        return self._instead_of

    # --- a group of records -----------------------------------------------------------------------

    def _new_state(self) -> GroupState:
        return GroupState()

    def _draft(self) -> Draft:
        return Draft(self._state)

    def _parts(self, draft: Draft) -> Iterator[tuple[Sequence[Change], Sequence[Change]]]:
        if self._instead_of is not None and self._instead_of.members:
            yield draft.changes, draft.undo
        else:
            yield from parts_of(draft, self.group_id)

    def _records(self, changes: Iterable[Change]) -> list[Record]:
        return records_of(self.group_id, changes)

    def _replaces(self) -> list[Record]:
        return [] if self._instead_of is None else [(group_key(self.group_id), None)]

    def _in_log(self) -> None:
        self._instead_of = None

    def _undone(self, changes: Sequence[Change]) -> None:
        if any(change.kind is Kind.PATTERN for change in changes):
            self._patterns_unwritten()

    def _patterns_unwritten(self) -> None:
        """Topics of patterns were found, and not written: they are to be found again."""
        raise NotImplementedError

    # --- timers, and what C has -------------------------------------------------------------------

    def _follow(self, changes: Iterable[Change]) -> None:
        """The timers and C learn of changes."""
        for kind, key, _ in changes:
            if kind not in (Kind.MEMBER, Kind.CURRENT):
                continue
            member = self._state.members.get(key)
            if member is None:
                self._timers.end(key)
                self._beats.forget(key)
            else:
                self._follow_member(key, member)
        self._publish()

    def _follow_member(self, member_id: str, member: MemberImage) -> None:
        self._timers.follow(
            member_id,
            self._state.current_of(member_id),
            member.rebalance_timeout_ms,
            is_classic=member.classic is not None,
        )

    def _session_ms(self, member_id: str, timeout_ms: int) -> int:
        classic = self._state.members[member_id].classic
        return timeout_ms if classic is None else classic.session_timeout_ms

    def _session_begun(self, member_id: str) -> None:
        self._follow_member(member_id, self._state.members[member_id])

    def _heard_ms(self, member_id: str) -> int:
        return self._beats.heard_ms(member_id)

    def _publish(self) -> None:
        """C writes commits under this number from now on."""
        self._generation = self._generation % _GENERATION_MAX + 1
        view = self._around.view
        try:
            if not self._state.exists:
                view.remove_members(self.group_id)
                return
            state = ClassicState.STABLE if self._state.members else ClassicState.EMPTY
            view.publish_members(
                self.group_id, state=state, generation=self._generation, members=()
            )
        except Exception as error:
            self._around.failures.note("showing a consumer group", error)
            try:
                self._timers.keep_heard()
            finally:
                view.remove_members(self.group_id)

    # --- it becomes a classic group ---------------------------------------------------------------

    def _step_begins(self) -> None:
        self._becomes = None

    def _decided(
        self,
        draft: DraftOf[GroupState],
        writes: Sequence[Write],
        found: HeartbeatAnswer,
        answer: AnswerHeartbeat | None,
    ) -> None:
        if self._becomes is None:
            super()._decided(draft, writes, found, answer)
            return
        # Until its record is in the log nothing else is decided, and then all is of that group.
        self._deleting = self._turning = True
        turn = _Turn(draft.changes, draft.undo, self._becomes)
        self._unwritten.append(turn)
        self._publish()
        self._outbox.add(partial(self._write, turn, found, answer))

    def _records_of(self, write: Write) -> list[Record]:
        records = super()._records_of(write)
        if isinstance(write, _Turn):
            records.append((group_key(self.group_id), encode_group(write.becomes)))
        return records

    def _not_written(self, write: Write) -> None:
        if isinstance(write, _Turn):
            self._stays_consumer()

    def _appended(self, write: Write, code: ErrorCode) -> None:
        super()._appended(write, code)
        if not isinstance(write, _Turn):
            return
        if code:
            if code in _NEVER_WRITTEN:
                self._cannot_turn = True  # else its last consumer could never be removed
            self._stays_consumer()
        else:
            self._is_classic(write.becomes)

    def _is_classic(self, becomes: ClassicImage) -> None:
        """The record of the classic group is in the log. What C has of it from here on is that
        group's."""
        with self.lock:
            if self.lost:
                return
            self._timers.end_all()
            self._around.quick.ended(self.group_id)
        try:
            self._around.turned(self, becomes)
        except Exception as error:
            # Else the id would be that of a group that is lost, until the partition moves.
            self._around.failures.note("a group that became a classic one", error)
            self._around.gone(self)
        finally:
            with self.lock:
                self.lost = True

    def _stays_consumer(self) -> None:
        """That record could not be written. Timers that have ended meanwhile begin again."""
        with self.lock:
            self._deleting = self._turning = False
            if not self.lost:
                self._timers.end_all()
                self._begin_sessions()
                self._publish()
