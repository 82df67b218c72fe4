"""Steps of a consumer group: what is decided under its lock, in memory at once, then in the log.

    request, timer, result -> under the lock: a draft of the state (decisions.py)
                           -> outbox: the records to the log, then the answer

A draft is in memory at once, so the next request is decided with it, and its records are written in
the order of the decisions. An answer is sent when the followers have the records of its own
decision, or, where that changed nothing, of all before it: what a client has learned, another
coordinator knows too.

A large draft is written in parts, since the log takes no batch beyond `max.message.bytes`: the
group's epoch first and that of its target last, so that of any first parts a coordinator makes
another target. If a write is refused, its changes and those decided after it are taken back, and
their requests get the error: memory is what the log is. If the followers do not get a record in
time it stays, as in Apache Kafka.

C has a number of the group that changes with each draft. Under it C answers heartbeats that change
nothing (`beats.py`); every other request of a member comes here. A commit that was checked here is
written by C under that number, or is checked again (`ConsumerGroup.admit_commit`). So no commit is
written after the partition was taken from its member.

Lock: one per group, a leaf but for the timer's and the compiled view's. Any thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.consumer_group.beats import Beats
from kbroker.coordinator.consumer_group.images import Change, Kind, MemberImage
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer, Refused
from kbroker.coordinator.consumer_group.parts import parts_of
from kbroker.coordinator.consumer_group.records import records_of
from kbroker.coordinator.consumer_group.state import Draft, GroupState
from kbroker.coordinator.consumer_group.timers import Timers
from kbroker.coordinator.group.group_records import encode_group, group_key
from kbroker.coordinator.group.states import GroupState as ClassicState
from kbroker.coordinator.group.step import Once
from kbroker.coordinator.runtime.outbox import Outbox
from kbroker.errors import ErrorCode
from kbroker.limits import LOG_GROUP_LINES_MAX
from kbroker.log_lines import LogLines
from kbroker.outside_text import printable

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.consumer_group.beats import BeatsInC
    from kbroker.coordinator.consumer_group.messages import AnswerHeartbeat
    from kbroker.coordinator.consumer_group.quick import QuickGroups
    from kbroker.coordinator.consumer_group.settings import Settings
    from kbroker.coordinator.consumer_group.topics import Topics, TopicsSeen
    from kbroker.coordinator.group.departures import Departures
    from kbroker.coordinator.group.images import GroupImage as ClassicImage
    from kbroker.coordinator.group.seams import HotView
    from kbroker.coordinator.group.store import OffsetsStore
    from kbroker.failures import Failures
    from kbroker.purgatory.timer import CallLater

NONE: Final = ErrorCode.NONE
FAILED: Final = ErrorCode.UNKNOWN_SERVER_ERROR
# A write that got one of these gets it again.
_NEVER_WRITTEN: Final = (ErrorCode.MESSAGE_TOO_LARGE, FAILED)
_GENERATION_MAX: Final = 2**31 - 1

# The bound on log lines of each cause.
lines: Final = LogLines(logging.getLogger("kbroker.groups"), lines_max=LOG_GROUP_LINES_MAX)

Record = tuple[bytes, bytes | None]
Decide = Callable[[Draft], HeartbeatAnswer | None]


@dataclass(frozen=True, slots=True)
class Around:
    """What a group needs of the broker around it."""

    settings: Callable[[str], Settings]
    clock: Clock
    call_later: CallLater
    store: OffsetsStore
    view: HotView
    beats: BeatsInC
    failures: Failures
    departures: Departures
    topics: Topics
    quick: QuickGroups
    beside: Callable[[Callable[[], object]], bool]  # has a job done; False: it will not be
    gone: Callable[[Steps], object]  # nothing of the group was written
    turned: Callable[[Steps, ClassicImage], object]  # a classic group takes its place


class _Write:
    """A draft, or a part of one, that is not in the log yet. `becomes`: the classic group of which
    the record is written with it."""

    __slots__ = ("becomes", "changes", "refused", "undo")

    def __init__(
        self,
        changes: Sequence[Change],
        undo: Sequence[Change],
        becomes: ClassicImage | None = None,
    ) -> None:
        self.changes = changes
        self.undo = undo
        self.becomes = becomes
        self.refused: ErrorCode | None = None


class Steps:
    """See the module. `ConsumerGroup` adds what is decided."""

    __slots__ = (
        "_around", "_beats", "_becomes", "_cannot_turn", "_committing", "_deleting", "_generation",
        "_incarnation", "_instead_of", "_outbox", "_seen", "_state", "_timers", "_turning",
        "_unwritten", "group_id", "lock", "lost",
    )  # fmt: skip

    def __init__(
        self,
        group_id: str,
        around: Around,
        incarnation: int,
        instead_of: ClassicImage | None = None,
    ) -> None:
        """`incarnation`: higher than that of every group before that had this id. `instead_of`: a
        classic group, whose record is removed before all else is written, as one batch with
        its members here."""
        self.group_id: Final = group_id
        self._around: Final = around
        self._incarnation: Final = incarnation
        self._instead_of = instead_of  # while its record is there
        self._becomes: ClassicImage | None = None  # decided in this step
        self._turning = False  # its record is being written
        self._cannot_turn = False  # the log does not take that record
        self.lock: Final = threading.Lock()
        self._outbox: Final = Outbox(self.lock, around.failures)
        self._state = GroupState()
        self._unwritten: deque[_Write] = deque()
        self._committing = 0  # writes that the followers may not have
        self._generation = 1  # that C has; another one after each change
        self._deleting = False
        # Its partition is, or was, or it was deleted; another group may have the id by now.
        self.lost = False
        self._seen: TopicsSeen | None = None  # when the hash was compared
        self._beats: Final = Beats(group_id, around.beats)
        self._timers = Timers(
            around.clock, around.call_later, self._session_timer, self._owed_timer,
            self._beats.heard_ms,
        )  # fmt: skip

    @property
    def took_place_of(self) -> ClassicImage | None:
        """The classic group for which it was made, as long as that one's record is there."""
        return self._instead_of

    def _replaces(self) -> list[Record]:
        return [] if self._instead_of is None else [(group_key(self.group_id), None)]

    def _patterns_unwritten(self) -> None:
        """Topics of patterns were found, and not written: they are to be found again."""
        raise NotImplementedError

    # The timers' ends, which take the lock.
    def _session_timer(self, member_id: str, token: int) -> None:
        raise NotImplementedError

    def _owed_timer(self, member_id: str, token: int) -> None:
        raise NotImplementedError

    # --- a step -----------------------------------------------------------------------------------

    def _run(self, decide: Decide, answer: AnswerHeartbeat | None, what: str) -> None:
        """`answer` is called once; `what` is done, in words, for the line if that fails."""
        if answer is not None:
            answer = Once(answer)
        with self.lock:
            self._step(decide, answer, what)
        self._outbox.run()

    def _step(self, decide: Decide, answer: AnswerHeartbeat | None, what: str) -> None:
        if self.lost or self._deleting:
            code = ErrorCode.NOT_COORDINATOR if self.lost else ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._answer_later(answer, HeartbeatAnswer(code))
            return
        self._becomes = None
        draft = Draft(self._state)
        try:
            found = decide(draft) or HeartbeatAnswer()
        except Refused as refused:
            draft.take_back()
            self._answer_later(answer, HeartbeatAnswer(refused.code, refused.message))
            self._forget_if_bare()
            return
        except Exception as error:
            draft.take_back()
            self._seen = None  # what was seen in it may not have had its effect
            self._around.failures.note(what, error)
            self._answer_later(answer, HeartbeatAnswer(FAILED))
            self._forget_if_bare()
            return
        if self._becomes is not None:
            # Until its record is in the log nothing else is decided, and then all is of that group.
            self._deleting = self._turning = True
            last = _Write(draft.changes, draft.undo, self._becomes)
            self._unwritten.append(last)
            self._publish()
            self._outbox.add(partial(self._write, last, found, answer))
        elif draft.changes:
            *before, last = self._parts(draft)
            self._unwritten.extend((*before, last))
            self._follow(draft.changes)
            for write in before:
                self._outbox.add(partial(self._write, write, found, None))
            self._outbox.add(partial(self._write, last, found, answer))
        elif answer is not None and (self._unwritten or self._committing):
            earlier = self._unwritten[-1] if self._unwritten else None
            self._outbox.add(partial(self._answer_settled, found, answer, earlier))
        else:
            self._answer_later(answer, found)

    def _parts(self, draft: Draft) -> list[_Write]:
        if self._instead_of is not None and self._instead_of.members:
            return [_Write(draft.changes, draft.undo)]
        return [_Write(*part) for part in parts_of(draft, self.group_id)]

    def _come_back(self, note: Callable[[], object], decide: Decide, what: str) -> None:
        """What was done beside has ended. `note` says so to the one that waits for it, also where
        nothing is decided now, since the group is being removed: it may stay."""
        with self.lock:
            note()
            self._step(decide, None, what)
        self._outbox.run()

    def _answer_later(self, answer: AnswerHeartbeat | None, found: HeartbeatAnswer) -> None:
        if answer is not None:
            self._outbox.add(partial(answer, found))

    def _forget_if_bare(self) -> None:
        """A group that has never been written, and will not be, is not there."""
        if not self._state.exists and not self._unwritten:
            self.lost = True
            self._timers.end_all()
            self._outbox.add(partial(self._around.gone, self))

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

    # --- writes: from the outbox ------------------------------------------------------------------

    def _write(self, write: _Write, found: HeartbeatAnswer, answer: AnswerHeartbeat | None) -> None:
        if write.refused is None and self.lost:
            write.refused = ErrorCode.NOT_COORDINATOR  # its id may be another group's by now
        if write.refused is None:
            try:
                records = [*self._replaces(), *records_of(self.group_id, write.changes)]
                if write.becomes is not None:
                    records.append((group_key(self.group_id), encode_group(write.becomes)))
                self._around.store.write_records(
                    self.group_id,
                    self._incarnation,
                    records,
                    partial(self._appended, write),
                    partial(self._committed, write, found, answer),
                )
                return
            except Exception as error:
                self._around.failures.note("a write of a consumer group", error)
                self._appended(write, FAILED)
        elif write.becomes is not None:
            self._stays_consumer()
        if answer is not None:
            answer(HeartbeatAnswer(write.refused or FAILED))

    def _appended(self, write: _Write, code: ErrorCode) -> None:
        with self.lock:
            if code:
                self._take_back(write, code)
                if write.becomes is not None and code in _NEVER_WRITTEN:
                    self._cannot_turn = True  # else its last consumer could never be removed
            else:
                self._unwritten.remove(write)
                self._instead_of = None
                self._committing += 1
        if write.becomes is None:
            return
        if code:
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

    def _take_back(self, write: _Write, code: ErrorCode) -> None:
        """This one and all that were decided after it."""
        if write not in self._unwritten:
            return
        undone: list[Change] = []
        while self._unwritten:
            last = self._unwritten.pop()
            last.refused = code
            undone += last.undo
            if last is write:
                break
        for change in undone:
            self._state.apply(change)
        if self.lost:
            return
        self._seen = None
        if any(change.kind is Kind.PATTERN for change in undone):
            self._patterns_unwritten()
        if code is not ErrorCode.NOT_COORDINATOR:  # which is how a group moves to another broker
            message = "a change of group %s cannot be written, and is taken back: %s"
            cause = f"unwritten {code.name}"
            lines.write(logging.WARNING, cause, message, printable(self.group_id), code.name)
        self._follow(undone)
        self._begin_sessions()
        self._forget_if_bare()

    def _committed(
        self,
        write: _Write,
        found: HeartbeatAnswer,
        answer: AnswerHeartbeat | None,
        code: ErrorCode,
    ) -> None:
        if write.refused is None:
            with self.lock:
                self._committing -= 1
        if answer is not None:
            answer(HeartbeatAnswer(code) if code else found)

    def _answer_settled(
        self, found: HeartbeatAnswer, answer: AnswerHeartbeat, earlier: _Write | None
    ) -> None:
        """`earlier`: the last write decided before it, which may be refused meanwhile."""
        if earlier is not None and earlier.refused is not None:
            answer(HeartbeatAnswer(earlier.refused))
            return
        self._around.store.when_settled(
            self.group_id, lambda code: answer(HeartbeatAnswer(code) if code else found)
        )

    # --- the log, the operator, leadership --------------------------------------------------------

    def load(self, state: GroupState) -> None:
        """Become what the log says; members have a whole session from now."""
        with self.lock:
            self._state = state
            self._begin_sessions()
            self._publish()
        self._outbox.run()

    def _begin_sessions(self) -> None:
        missing = self._timers.without(self._state.members)
        if not missing:
            return
        timeout_ms = self._around.settings(self.group_id).session_timeout_ms
        for member_id in missing:
            member = self._state.members[member_id]
            own = timeout_ms if member.classic is None else member.classic.session_timeout_ms
            self._timers.renew(member_id, own)
            self._follow_member(member_id, member)

    def unload(self) -> None:
        """This broker has lost the group."""
        with self.lock:
            if not self.lost:
                self.lost = True
                self._timers.end_all()
                self._around.quick.ended(self.group_id)
                self._around.view.remove_members(self.group_id)
        self._outbox.run()

    def delete(
        self,
        done: Callable[[ErrorCode], object],
        *,
        unless: Callable[[], bool],
        gone: Callable[[], object],
    ) -> None:
        """As `group.group.Group.delete`: an empty group goes, with its offsets."""
        with self.lock:
            code = self._may_be_removed()
            if not code and not self._state.exists:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            if code:
                self._outbox.add(partial(done, code))
            else:
                self._deleting = True
                self._around.view.remove_members(self.group_id)
                self._outbox.add(partial(self._delete, done, unless, gone))
        self._outbox.run()

    def retire(self, done: Callable[[ErrorCode], object]) -> None:
        """An empty group makes room for one of another kind; its offsets stay. `done` is called
        once, when its tombstones are in the log, or with the reason why it stays."""
        with self.lock:
            code = self._may_be_removed()
            if code:
                self._outbox.add(partial(done, code))
            else:
                self._deleting = True
                self._outbox.add(partial(self._retire, done))
        self._outbox.run()

    def _may_be_removed(self) -> ErrorCode:
        if self.lost:
            return ErrorCode.NOT_COORDINATOR
        if self._deleting:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NON_EMPTY_GROUP if self._state.members else NONE

    def _stays(self, code: ErrorCode, done: Callable[[ErrorCode], object]) -> None:
        self._end(code)
        done(code)

    def _has_members(self) -> bool:
        """Also of a group that was empty when its removal began: if it could not be written that
        the last one has left, that one is there again."""
        with self.lock:
            return bool(self._state.members)

    def _tombstones(self) -> list[Record]:
        return [*self._replaces(), *records_of(self.group_id, self._state.tombstones())]

    def _retire(self, done: Callable[[ErrorCode], object]) -> None:
        if self._has_members():
            self._stays(ErrorCode.NON_EMPTY_GROUP, done)
            return
        records = self._tombstones()
        if not records:
            self._end(NONE)
            done(NONE)
            return

        @Once
        def appended(code: ErrorCode) -> None:
            self._end(code)
            done(code)

        try:
            self._around.store.write_records(
                self.group_id, self._incarnation, records, appended, lambda _: None
            )
        except Exception as error:
            self._around.failures.note("the removal of an empty consumer group", error)
            appended(FAILED)

    def _delete(
        self,
        done: Callable[[ErrorCode], object],
        unless: Callable[[], bool],
        gone: Callable[[], object],
    ) -> None:
        def in_log() -> None:
            self._end(NONE)
            gone()

        def ended(code: ErrorCode) -> None:
            if code is ErrorCode.NOT_COORDINATOR:
                gone()
            elif code and not self.lost:
                self._end(code)
            done(code)

        try:
            if self.lost:
                ended(ErrorCode.NOT_COORDINATOR)
            elif self._has_members() or unless():
                ended(ErrorCode.NON_EMPTY_GROUP)
            else:
                self._around.store.delete_records(self.group_id, self._tombstones(), in_log, ended)
        except Exception as error:
            self._around.failures.note("the deletion of a consumer group", error)
            ended(FAILED)

    def _end(self, code: ErrorCode) -> None:
        """The removal has been written, or refused."""
        with self.lock:
            self._deleting = False
            if self.lost:
                return
            if code:
                self._publish()
            else:
                self.lost = True
                self._timers.end_all()
                self._around.quick.ended(self.group_id)
                self._around.view.remove_members(self.group_id)
