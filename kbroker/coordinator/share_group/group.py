"""One share group: the requests, timers and results that reach it.

Place in the flow: the coordinator finds the group; a public method here has a step of it taken
(`consumer_group/record_steps.py`), which decides with `decisions.py`. States of share-partitions
begin in a step after the answer to a heartbeat, and are asked of the persister (`questions.py`);
what came is another step, and the next heartbeat finds a target with it. The persister's thread
writes nothing: it hands over to a worker of the group's log.

A share group commits no offsets, and has no member of the classic protocol; it stays while it is
empty, until it is deleted, for its share-partitions' states are worth keeping.

Any thread; the group's lock is taken here and held for no write, answer or question.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.consumer_group.assignments import Assigner, Targets
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer, Refused
from kbroker.coordinator.consumer_group.parts import parts_of
from kbroker.coordinator.consumer_group.quick import CHANGES_FOR_MS, QUICK_MS
from kbroker.coordinator.consumer_group.record_steps import (
    FAILED,
    GroupAround,
    Record,
    Write,
    lines,
)
from kbroker.coordinator.group.expiration import GroupAge
from kbroker.coordinator.group.messages import (
    NO_MEMBER_ID,
    Admission,
    GroupListing,
    JoinAnswer,
    LeaveAnswer,
    SyncAnswer,
)
from kbroker.coordinator.group.states import GroupState as ClassicState
from kbroker.coordinator.runtime.deadline import OnWorker
from kbroker.coordinator.share.gathering import Gathering
from kbroker.coordinator.share.images import NO_START, SharePartition
from kbroker.coordinator.share.seams import Outcome
from kbroker.coordinator.share_group import decisions
from kbroker.coordinator.share_group.assignor import SIMPLE, Subscriber, assign
from kbroker.coordinator.share_group.images import Kind
from kbroker.coordinator.share_group.messages import DescribedMember, Description
from kbroker.coordinator.share_group.offset_steps import ASKING_MS_MAX, OffsetSteps
from kbroker.coordinator.share_group.questions import (
    PAUSE_MS,
    UNDER_WAY_MAX,
    StateQuestion,
    StateQuestions,
    has_no_state,
    wanted,
)
from kbroker.coordinator.share_group.records import record_bytes, records_of
from kbroker.coordinator.share_group.state import Draft, ShareGroupLabel, ShareGroupState
from kbroker.errors import ErrorCode
from kbroker.once import once
from kbroker.outside_text import printable

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.messages import AnswerHeartbeat
    from kbroker.coordinator.consumer_group.settings import Settings
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.group.messages import (
        AnswerJoin,
        AnswerLeave,
        AnswerSync,
        CommitAsked,
        GroupDescription,
        JoinAsked,
        Leaver,
        SyncAsked,
    )
    from kbroker.coordinator.share.seams import Persister
    from kbroker.coordinator.share_group.messages import HeartbeatAsked

SHARE: Final = "share"
_NONE: Final = ErrorCode.NONE
_UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID


class Question(NamedTuple):
    """All that an assignment follows from; nothing in it changes."""

    epoch: int
    members: Sequence[Subscriber]
    partitions: Mapping[UUID, frozenset[int]]

    @property
    def size(self) -> int:
        return len(self.members) + sum(map(len, self.partitions.values()))


def compute(question: Question) -> Targets:
    return assign(question.members, question.partitions)


class ShareGroup(OffsetSteps):
    """See the module."""

    __slots__ = (
        "_asked_epoch", "_asked_step", "_assigner", "_begins", "_begins_ms", "_changed_ms",
        "_has_states", "_joined_ms", "_questions", "_retry_ms", "_states_changed", "_step_count",
    )  # fmt: skip

    def __init__(
        self,
        group_id: str,
        around: GroupAround,
        incarnation: int,
        persister: Callable[[], Persister],
        retry_ms: Callable[[], int],
        on_worker: OnWorker,
        has_states: Callable[[], bool],
    ) -> None:
        """`retry_ms`: before a share-partition is asked for again of which no answer has come.
        `on_worker` has something done by a thread that may wait for the log of this group.
        `has_states`: whether share coordinators are there to be asked."""
        super().__init__(group_id, around, incarnation, persister, on_worker)
        self._has_states = has_states
        self._retry_ms = retry_ms
        self._changed_ms = self._joined_ms = -CHANGES_FOR_MS
        self._assigner = Assigner(around.clock, self._compute_beside, compute)
        self._questions = StateQuestions()
        # Steps that have found out what is wanted; the last one of them that has asked.
        self._step_count = self._asked_step = self._asked_epoch = 0
        self._begins = False  # states are perhaps to begin, from this time on
        self._begins_ms = 0
        self._states_changed = True  # since the last heartbeat

    # --- a group of records -----------------------------------------------------------------------

    def _new_state(self) -> ShareGroupState:
        return ShareGroupState()

    def _draft(self) -> Draft:
        return Draft(self._state)

    def _parts(self, draft: Draft) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """A few records may be large ones: of members that have many partitions."""
        yield from parts_of(draft, self.group_id, record_bytes, first=Kind.GROUP)

    def _records(self, changes: Iterable[Any]) -> list[Record]:
        return records_of(self.group_id, changes)

    def _follow(self, changes: Iterable[Any]) -> None:
        for kind, key, _ in changes:
            if kind == Kind.MEMBER and key not in self._state.members:
                self._timers.end(key)
            elif kind in (Kind.STATE_TOPICS, Kind.TARGET_EPOCH):  # of a target that came late, too
                self._states_changed = True

    def _undone(self, changes: Sequence[Any]) -> None:
        self._states_changed = True

    def _has_changed(self) -> None:
        self._changed_ms = self._around.clock.monotonic_ms()

    # --- heartbeats -------------------------------------------------------------------------------

    def beat(self, asked: HeartbeatAsked, answer: AnswerHeartbeat) -> None:
        """A member joins or stays. `answer` is called once, when it may be known."""

        def answered(found: HeartbeatAnswer) -> None:
            answer(found)
            if not found.code:
                self._see_to_states()

        self._run(partial(self._beaten, asked), answered, "a heartbeat of a share group")

    def part(self, asked: HeartbeatAsked, answer: AnswerHeartbeat) -> None:
        """A member leaves."""
        self._run(partial(self._left, asked), answer, "the leaving of a member")

    def _beaten(self, asked: HeartbeatAsked, draft: Draft) -> HeartbeatAnswer:
        around, state = self._around, self._state
        if not state.exists and asked.epoch > 0:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} not found.")
        settings = around.settings(self.group_id)
        topics = around.topics.seen()
        before = state.members.get(asked.member_id)
        look = self._states_changed or not topics.is_same(self._seen)
        if look:
            decisions.topics_gone(draft, lambda topic_id: topics.name_of(topic_id) is not None)
        outcome = decisions.heartbeat(
            draft,
            asked,
            topics,
            partial(self._assign, topics, settings),
            size_max=settings.size_max,
            now_ms=around.clock.wall_ms(),
            look=look,
        )
        subscribes_alike = before is not None and asked.topics in (None, before.topics)
        if look or not subscribes_alike:
            self._begins = True  # in a step of its own: it may be refused alone
        self._seen = topics
        self._states_changed = False
        if before is None:
            self._joined_ms = around.clock.monotonic_ms()
        self._timers.renew(outcome.member_id, settings.session_timeout_ms)
        if draft.changes:
            self._has_changed()
        return HeartbeatAnswer(
            member_id=outcome.member_id,
            epoch=outcome.epoch,
            interval_ms=self._interval_ms(settings),
            assignment=outcome.assignment,
        )

    def _left(self, asked: HeartbeatAsked, draft: Draft) -> HeartbeatAnswer:
        if not self._state.exists:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} not found.")
        decisions.removed(draft, [asked.member_id], self._around.topics.seen())
        self._has_changed()
        return HeartbeatAnswer(member_id=asked.member_id, epoch=asked.epoch)

    def _interval_ms(self, settings: Settings) -> int:
        """Until the next heartbeat: short while the group changes."""
        now_ms = self._around.clock.monotonic_ms()
        until_ms = self._changed_ms + CHANGES_FOR_MS
        state = self._state
        is_young = now_ms < self._joined_ms + CHANGES_FOR_MS
        begins = self._begins or bool(state.state_topics.initializing)
        is_late = begins or state.epoch > state.assignment_epoch
        if now_ms >= until_ms or not (is_young or is_late):
            self._around.quick.ended(self.group_id)
            return settings.heartbeat_interval_ms
        members = len(state.members)
        if self._around.quick.may(self.group_id, members, until_ms, now_ms):
            return min(QUICK_MS, settings.heartbeat_interval_ms)
        return settings.heartbeat_interval_ms

    # --- assignments ------------------------------------------------------------------------------

    def _assign(self, topics: TopicsSeen, settings: Settings, draft: Draft) -> None:
        state = draft.state
        size = len(state.members) + sum(topics.partition_counts(state.topics()).values())
        found = self._assigner.targets(
            partial(self._question, topics), size, settings.assignment_interval_ms
        )
        if found is not None:
            decisions.assigned(draft, *found, self._around.clock.wall_ms())

    def _question(self, topics: TopicsSeen) -> Question:
        """Members that subscribe alike share one set."""
        state = self._state
        known: dict[tuple[str, ...], frozenset[UUID]] = {}
        members = []
        for member_id, member in state.members.items():
            ids = known.get(member.topics)
            if ids is None:
                ids = known[member.topics] = topics.ids_of(member.topics)
            members.append(Subscriber(member_id, ids, state.target_of(member_id)))
        return Question(state.epoch, members, decisions.assignable(state, topics))

    def _compute_beside(self, question: Question) -> bool:
        return self._around.beside(partial(self._computed, question))

    def _computed(self, question: Question) -> None:
        """On the thread beside."""
        clock = self._around.clock
        began_ns = clock.monotonic_ns()
        targets: Targets | None = None
        interval_ms = 0
        try:
            interval_ms = self._around.settings(self.group_id).assignment_interval_ms
            targets = compute(question)
        finally:
            took_ns = clock.monotonic_ns() - began_ns
            self._come_back(
                partial(self._assigner.answered, question, took_ns, interval_ms),
                partial(self._assigned, question, targets),
                "an assignment",
            )

    def _assigned(self, question: Question, targets: Targets | None, draft: Draft) -> None:
        if targets is not None:
            now_ms = self._around.clock.wall_ms()
            if decisions.assigned(draft, question.epoch, targets, now_ms):
                self._has_changed()

    # --- states of share-partitions ---------------------------------------------------------------

    def _see_to_states(self) -> None:
        """A step, if states are to begin, have come, or are to be asked for again."""
        now_ms = self._around.clock.monotonic_ms()
        with self.lock:
            begins = self._begins and self._begins_ms <= now_ms
            if self.lost or self._deleting or not (begins or self._questions.is_due(now_ms)):
                return
        questions: list[StateQuestion] = []
        step = epoch = 0

        def decide(draft: Draft) -> None:
            nonlocal step, epoch
            step = self._step_count = self._step_count + 1
            topics = self._around.topics.seen()
            came = self._questions.take()
            decisions.states_came(draft, came.begun, came.deleted, topics)
            if begins:
                self._begins = False
                self._write_left(decisions.begin_states(draft, topics))
            if came.is_fenced:
                decisions.topics_again(draft)
            if draft.changes:
                self._has_changed()
            questions.extend(wanted(draft.state.state_topics, topics))
            epoch = draft.state.epoch
            self._write_failed(came.failed)

        def decided(found: HeartbeatAnswer) -> None:
            if found.code:
                with self.lock:
                    self._begins = True
                    self._begins_ms = self._around.clock.monotonic_ms() + PAUSE_MS
            else:
                self._ask(step, questions, epoch)

        self._run(decide, decided, "the states of share-partitions")

    def _ask(self, step: int, questions: Sequence[StateQuestion], epoch: int) -> None:
        """What this step has found wanted, unless a later one has asked already."""
        now_ms = self._around.clock.monotonic_ms()
        with self.lock:
            if self.lost or self._deleting or step < self._asked_step:
                return
            self._asked_step, self._asked_epoch = step, epoch
            free = [
                each for each in questions if (each.topic_id, each.partition) not in self._claims
            ]
            self._questions.want(free, now_ms, self._retry_ms())
            self._ask_next(now_ms)
        self._outbox.run()

    def _ask_next(self, now_ms: int) -> bool:
        """They go in the order of the steps: none comes after the deletion of the group."""
        found = self._questions.next(self._state.state_topics, now_ms)
        for each in found:
            is_fenced = self._questions.is_fenced(each)
            call = partial(self._ask_one, each, self._asked_epoch, is_fenced=is_fenced)
            self._outbox.add(call)
        return bool(found)

    def _ask_one(self, question: StateQuestion, epoch: int, *, is_fenced: bool) -> None:
        if self.lost:
            return
        key = SharePartition(self.group_id, question.topic_id, question.partition)
        if question.deletes:
            self._persister().delete(key, partial(self._came, question))
        else:
            if is_fenced:
                self._persister().delete(key, _no_answer)
            self._persister().initialize(key, epoch, NO_START, partial(self._came, question))

    def _came(self, question: StateQuestion, outcome: Outcome) -> None:
        """The thread may not wait for a log: another one writes what came."""
        now_ms = self._around.clock.monotonic_ms()
        with self.lock:
            is_last = self._questions.came(question, outcome, now_ms, self._retry_ms())
        if is_last:
            self._on_worker(self.group_id, self._go_on)

    def _go_on(self) -> None:
        """On a worker: all that were under way are answered. The next ones are asked before what
        came is written, for that record is of all topics; but for no longer than a moment."""
        now_ms = self._around.clock.monotonic_ms()
        with self.lock:
            goes_on = not (self.lost or self._deleting or self._questions.is_due(now_ms))
            goes_on = goes_on and self._ask_next(now_ms)
        if goes_on:
            self._outbox.run()
        else:
            self._see_to_states()

    def _write_left(self, left: int) -> None:
        if left:
            message = "%d topics of group %s get no state, and are with no member: it has too many"
            group_id = printable(self.group_id)
            lines.write(logging.WARNING, "states left", message, left, group_id)

    def _taken_over(self, topic_ids: Iterable[UUID]) -> None:
        self._questions.forget(topic_ids)

    def _released(self) -> None:
        self._begins = True

    def _write_failed(self, failed: Mapping[ErrorCode, int]) -> None:
        for code, count in failed.items():
            lines.write(
                logging.WARNING,
                f"states {code.name}",
                "%d states of share-partitions of group %s were not begun or deleted, and are"
                " asked for again: %s",
                count,
                printable(self.group_id),
                code.name,
            )

    # --- timers -----------------------------------------------------------------------------------

    def _session_timer(self, member_id: str, token: int) -> None:
        self._run(partial(self._session_over, member_id, token), None, "the end of a session")

    def _session_over(self, member_id: str, token: int, draft: Draft) -> None:
        is_over = self._timers.is_session_over(member_id, token)
        if is_over and member_id in self._state.members:
            decisions.removed(draft, [member_id], self._around.topics.seen())
            self._has_changed()

    def _owed_timer(self, member_id: str, token: int) -> None:
        """A member is asked to give nothing up."""

    # --- removal ----------------------------------------------------------------------------------

    def retire(self, done: Callable[[ErrorCode], object]) -> None:
        """It makes no room for a group of another kind."""
        done(ErrorCode.NON_EMPTY_GROUP)

    def _delete(
        self,
        done: Callable[[ErrorCode], object],
        unless: Callable[[], bool],
        gone: Callable[[], object],
    ) -> None:
        """First the states of its share-partitions, then the group. The log says before that they
        are to go: a group that stays after all takes no share-partition for initialized whose
        state is gone."""
        answered = once(done)
        delete_group = partial(super()._delete, answered, unless, gone)
        if self._has_members() or self.lost or not self._has_states():
            delete_group()
            return
        places: list[tuple[UUID, int]] = []

        def failed(error: Exception) -> None:
            self._around.failures.note("the deletion of a share group", error)
            self._stays(FAILED, answered)

        def begun(found: HeartbeatAnswer) -> None:
            try:
                if found.code:
                    self._stays(found.code, answered)
                elif not places:
                    delete_group()
                else:
                    keys = [SharePartition(self.group_id, *place) for place in places]
                    Gathering(
                        keys, self._persister().delete, went, lambda _: Outcome(FAILED),
                        self._around.failures, UNDER_WAY_MAX,
                        is_late=self._late_after(ASKING_MS_MAX),
                    ).begin()  # fmt: skip
            except Exception as error:
                failed(error)

        def went(outcomes: Mapping[SharePartition, Outcome]) -> None:
            try:
                if all(map(has_no_state, outcomes.values())):
                    self._on_worker(self.group_id, delete_group)
                else:
                    self._stays(ErrorCode.COORDINATOR_NOT_AVAILABLE, answered)
            except Exception as error:
                failed(error)

        try:
            if unless():
                self._stays(ErrorCode.NON_EMPTY_GROUP, answered)
            else:
                self._removal_begins(places, begun)
        except Exception as error:
            failed(error)

    def _removal_begins(self, places: list[tuple[UUID, int]], answer: AnswerHeartbeat) -> None:
        """`places` gets those of which states are to go."""
        with self.lock:
            draft = self._draft()
            places += decisions.removal_begins(draft, self._around.topics.seen())
            write = Write(draft.changes, draft.undo)
            if write.changes:
                self._unwritten.append(write)
                self._follow(write.changes)
        if write.changes:
            self._write(write, HeartbeatAnswer(), answer)
        else:
            answer(HeartbeatAnswer())

    # --- the classic protocol, and offsets --------------------------------------------------------

    def join(self, asked: JoinAsked, answer: AnswerJoin) -> None:
        if self.lost:
            answer(JoinAnswer(ErrorCode.NOT_COORDINATOR, asked.member_id))
        else:
            answer(JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NO_MEMBER_ID))

    def sync(self, asked: SyncAsked, answer: AnswerSync) -> None:
        answer(SyncAnswer(_UNKNOWN))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        return _UNKNOWN

    def leave(self, leavers: Sequence[Leaver], answer: AnswerLeave) -> None:
        answer(LeaveAnswer(_NONE, (_UNKNOWN,) * len(leavers)))

    def admit_commit(self, asked: CommitAsked) -> Admission:
        return Admission(ErrorCode.GROUP_ID_NOT_FOUND)

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Its offsets are no committed ones: of those it has none, which is no error."""
        return _NONE

    def readers(self) -> tuple[ErrorCode, frozenset[str] | None]:
        return ErrorCode.GROUP_ID_NOT_FOUND, None

    def aged(self) -> GroupAge:
        return GroupAge(ClassicState.STABLE, SHARE, -1, None)

    def described(self) -> GroupDescription | None:
        """It is no classic group."""
        return None

    # --- descriptions -----------------------------------------------------------------------------

    def topics_with_state(self) -> Mapping[UUID, frozenset[int]]:
        with self.lock:
            kept = self._state.state_topics.initialized
            return {topic_id: some.partitions for topic_id, some in kept.items()}

    def listed(self) -> GroupListing:
        return GroupListing(self.group_id, self.state, SHARE, SHARE)

    @property
    def exists(self) -> bool:
        return self._state.exists and not self.lost

    @property
    def is_empty(self) -> bool:
        """Never, for those who remove empty groups: it has states."""
        return False

    @property
    def member_count(self) -> int:
        return len(self._state.members)

    @property
    def state(self) -> ShareGroupLabel:
        with self.lock:
            return ShareGroupLabel.DEAD if self.lost else self._state.label

    def description(self) -> Description:
        with self.lock:
            state = self._state
            members = tuple(
                DescribedMember(
                    member_id,
                    member.rack_id,
                    state.current_of(member_id).epoch,
                    member.client_id,
                    member.client_host,
                    member.topics,
                    state.current_of(member_id).assigned,
                )
                for member_id, member in state.members.items()
            )
            return Description(
                self.group_id, state.label, state.epoch, state.assignment_epoch, SIMPLE, members
            )


def _no_answer(outcome: Outcome) -> None:
    """The next question is asked all the same."""
