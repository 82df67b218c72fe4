"""Steps of a group of records: what is decided under its lock, in memory at once, then in the log.

    request, timer, result -> under the lock: a draft of the state
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

Groups of two protocols are such groups; what is theirs is in the methods that raise here, and in
those that do nothing.

Lock: one per group, a leaf but for the timer's and the compiled view's. Any thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic

from kbroker.coordinator.consumer_group.drafts import DraftOf, S
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer, Refused
from kbroker.coordinator.consumer_group.timers import Timers
from kbroker.coordinator.group.step import Once
from kbroker.coordinator.runtime.deadline import OnWorker, at_once, later_on_worker
from kbroker.coordinator.runtime.outbox import Outbox
from kbroker.errors import ErrorCode
from kbroker.limits import LOG_GROUP_LINES_MAX
from kbroker.log_lines import LogLines
from kbroker.outside_text import printable

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.consumer_group.messages import AnswerHeartbeat
    from kbroker.coordinator.consumer_group.quick import QuickGroups
    from kbroker.coordinator.consumer_group.settings import Settings
    from kbroker.coordinator.consumer_group.topics import Topics, TopicsSeen
    from kbroker.coordinator.group.seams import HotView
    from kbroker.coordinator.group.store import OffsetsStore
    from kbroker.failures import Failures
    from kbroker.purgatory.timer import CallLater

NONE: Final = ErrorCode.NONE
FAILED: Final = ErrorCode.UNKNOWN_SERVER_ERROR

# The bound on log lines of each cause.
lines: Final = LogLines(logging.getLogger("kbroker.groups"), lines_max=LOG_GROUP_LINES_MAX)

Record = tuple[bytes, bytes | None]
Decide = Callable[[Any], HeartbeatAnswer | None]  # of a draft


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAround:
    """What a group needs of the broker around it."""

    settings: Callable[[str], Settings]
    clock: Clock
    call_later: CallLater
    store: OffsetsStore
    view: HotView
    failures: Failures
    topics: Topics
    quick: QuickGroups
    beside: Callable[[Callable[[], object]], bool]  # has a job done; False: it will not be
    gone: Callable[[Any], object]  # nothing of the group was written
    on_worker: OnWorker = at_once

    def later(self, group_id: str) -> CallLater:
        """The timers of a group."""
        return later_on_worker(self.call_later, self.on_worker, group_id)


class Write:
    """A draft, or a part of one, that is not in the log yet."""

    __slots__ = ("changes", "refused", "undo")

    def __init__(self, changes: Sequence[Any], undo: Sequence[Any]) -> None:
        self.changes = changes
        self.undo = undo
        self.refused: ErrorCode | None = None


class RecordSteps(Generic[S]):
    """See the module. A group of a protocol adds what is decided."""

    __slots__ = (
        "_around", "_committing", "_deleting", "_incarnation", "_outbox", "_seen", "_state",
        "_timers", "_unwritten", "group_id", "lock", "lost",
    )  # fmt: skip

    def __init__(self, group_id: str, around: GroupAround, incarnation: int) -> None:
        """`incarnation`: higher than that of every group before that had this id."""
        self.group_id: Final = group_id
        self._around: GroupAround = around
        self._incarnation: Final = incarnation
        self.lock: Final = threading.Lock()
        self._outbox: Final = Outbox(self.lock, around.failures)
        self._state: S = self._new_state()
        self._unwritten: deque[Write] = deque()
        self._committing = 0  # writes that the followers may not have
        self._deleting = False
        # Its partition is, or was, or it was deleted; another group may have the id by now.
        self.lost = False
        self._seen: TopicsSeen | None = None  # when the hash was compared
        self._timers = Timers(
            around.clock, around.later(group_id), self._session_timer, self._owed_timer,
            self._heard_ms,
        )  # fmt: skip

    # --- what is the protocol's -------------------------------------------------------------------

    def _new_state(self) -> S:
        raise NotImplementedError

    def _draft(self) -> DraftOf[S]:
        raise NotImplementedError

    def _parts(self, draft: Any) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """The changes of each part of a draft, and what takes them back, in its order."""
        raise NotImplementedError

    def _records(self, changes: Iterable[Any]) -> list[Record]:
        raise NotImplementedError

    def _replaces(self) -> list[Record]:
        """What comes before all else that is written."""
        return []

    def _in_log(self) -> None:
        """Something is written."""

    def _follow(self, changes: Iterable[Any]) -> None:
        """The timers and others learn of changes."""
        raise NotImplementedError

    def _heard_ms(self, member_id: str) -> int:
        """Monotonic ms of a member's last heartbeat that was answered elsewhere; 0: of none."""
        return 0

    def _publish(self) -> None:
        """Others are to know what the group is now."""

    def _undone(self, changes: Sequence[Any]) -> None:
        """These have taken changes back that could not be written."""

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
        self._step_begins()
        draft = self._draft()
        try:
            found = decide(draft) or HeartbeatAnswer()
            writes = [Write(*part) for part in self._parts(draft)] if draft.changes else []
        except Refused as refused:
            draft.take_back()
            self._answer_later(answer, HeartbeatAnswer(refused.code, refused.message))
            self._forget_if_bare()
            return
        except Exception as error:
            draft.take_back()
            self._timers.end_others(self._state.members)
            self._seen = None  # what was seen in it may not have had its effect
            self._around.failures.note(what, error)
            self._answer_later(answer, HeartbeatAnswer(FAILED))
            self._forget_if_bare()
            return
        self._decided(draft, writes, found, answer)

    def _step_begins(self) -> None:
        """Something is about to be decided."""

    def _decided(
        self,
        draft: DraftOf[S],
        writes: Sequence[Write],
        found: HeartbeatAnswer,
        answer: AnswerHeartbeat | None,
    ) -> None:
        if writes:
            *before, last = writes
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

    def _come_back(
        self,
        note: Callable[[], object],
        decide: Decide,
        what: str,
        answer: AnswerHeartbeat | None = None,
    ) -> None:
        """What was done beside has ended. `note` says so to the one that waits for it, also where
        nothing is decided now, since the group is being removed: it may stay. `answer` as in
        `_run`."""
        if answer is not None:
            answer = Once(answer)
        with self.lock:
            note()
            self._step(decide, answer, what)
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

    # --- writes: from the outbox ------------------------------------------------------------------

    def _write(self, write: Write, found: HeartbeatAnswer, answer: AnswerHeartbeat | None) -> None:
        if write.refused is None and self.lost:
            write.refused = ErrorCode.NOT_COORDINATOR  # its id may be another group's by now
        if write.refused is None:
            try:
                self._around.store.write_records(
                    self.group_id,
                    self._incarnation,
                    self._records_of(write),
                    partial(self._appended, write),
                    partial(self._committed, write, found, answer),
                )
                return
            except Exception as error:
                self._around.failures.note("a write of a group", error)
                self._appended(write, FAILED)
        else:
            self._not_written(write)
        if answer is not None:
            answer(HeartbeatAnswer(write.refused or FAILED))

    def _records_of(self, write: Write) -> list[Record]:
        return [*self._replaces(), *self._records(write.changes)]

    def _not_written(self, write: Write) -> None:
        """It was refused before its turn came."""

    def _appended(self, write: Write, code: ErrorCode) -> None:
        with self.lock:
            if code:
                self._take_back(write, code)
            else:
                self._unwritten.remove(write)
                self._in_log()
                self._committing += 1

    def _take_back(self, write: Write, code: ErrorCode) -> None:
        """This one and all that were decided after it."""
        if write not in self._unwritten:
            return
        undone: list[Any] = []
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
        self._undone(undone)
        if code is not ErrorCode.NOT_COORDINATOR:  # which is how a group moves to another broker
            message = "a change of group %s cannot be written, and is taken back: %s"
            cause = f"unwritten {code.name}"
            lines.write(logging.WARNING, cause, message, printable(self.group_id), code.name)
        self._follow(undone)
        self._begin_sessions()
        self._forget_if_bare()

    def _committed(
        self,
        write: Write,
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
        self, found: HeartbeatAnswer, answer: AnswerHeartbeat, earlier: Write | None
    ) -> None:
        """`earlier`: the last write decided before it, which may be refused meanwhile."""
        if earlier is not None and earlier.refused is not None:
            answer(HeartbeatAnswer(earlier.refused))
            return
        self._around.store.when_settled(
            self.group_id, lambda code: answer(HeartbeatAnswer(code) if code else found)
        )

    # --- the log, the operator, leadership --------------------------------------------------------

    def load(self, state: S) -> None:
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
            self._timers.renew(member_id, self._session_ms(member_id, timeout_ms))
            self._session_begun(member_id)

    def _session_ms(self, member_id: str, timeout_ms: int) -> int:
        """`timeout_ms`: the group's, for members that brought none of their own."""
        return timeout_ms

    def _session_begun(self, member_id: str) -> None:
        """Of a member whose timers are new."""

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
        return [*self._replaces(), *self._records(self._state.tombstones())]

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
            self._around.failures.note("the removal of an empty group", error)
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
            # A log whose disk refuses the write has that error, too, and its groups stay.
            is_led = self._around.store.state_of(self.group_id) is NONE
            if code is ErrorCode.NOT_COORDINATOR and not is_led:
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
            self._around.failures.note("the deletion of a group", error)
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
