"""One consumer group: the requests, timers and results that reach it.

Place in the flow: the coordinator finds the group; a public method here has a step of it taken
(`steps.py`), which decides with `decisions.py`. What takes long is done beside, and comes back as a
step: large assignments, and the topics of patterns.

Members may speak the classic protocol, as long as one speaks the other (`classic_requests.py`).

Any thread; the group's lock is taken here and held for no write, answer or computation beside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.consumer_group import decisions
from kbroker.coordinator.consumer_group.assignments import (
    Assigner,
    Question,
    Targets,
    assignor_of,
    compute,
    question_of,
)
from kbroker.coordinator.consumer_group.classic_requests import ClassicRequests
from kbroker.coordinator.consumer_group.images import partitions_of
from kbroker.coordinator.consumer_group.messages import (
    DescribedMember,
    Description,
    HeartbeatAnswer,
    Refused,
)
from kbroker.coordinator.consumer_group.patterns import Found, Look, Looks, Wanted
from kbroker.coordinator.consumer_group.quick import CHANGES_FOR_MS, QUICK_MS
from kbroker.coordinator.consumer_group.state import Draft
from kbroker.coordinator.consumer_group.states import ConsumerGroupState, MemberState
from kbroker.coordinator.consumer_group.timers import Owes
from kbroker.coordinator.group.departures import Why
from kbroker.coordinator.group.expiration import GroupAge
from kbroker.coordinator.group.messages import Admission, GroupListing
from kbroker.coordinator.group.states import GroupState as ClassicState
from kbroker.coordinator.group.step import Once
from kbroker.coordinator.group.subscriptions import CONSUMER
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.messages import AnswerHeartbeat, HeartbeatAsked
    from kbroker.coordinator.consumer_group.migration import Upgrade
    from kbroker.coordinator.consumer_group.settings import Settings
    from kbroker.coordinator.consumer_group.steps import Around
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.group.images import GroupImage as ClassicImage
    from kbroker.coordinator.group.messages import CommitAsked, GroupDescription

NONE: Final = ErrorCode.NONE
_NO_GENERATION: Final = -1
_LATE: Final = {
    Owes.REVOCATION: Why.NOT_REVOKED,
    Owes.JOIN: Why.NOT_JOINED,
    Owes.SYNC: Why.NOT_SYNCED,
}


class ConsumerGroup(ClassicRequests):
    """See the module."""

    __slots__ = ("_assigner", "_changed_ms", "_joined_ms", "_looks")

    def __init__(
        self,
        group_id: str,
        around: Around,
        incarnation: int,
        instead_of: ClassicImage | None = None,
    ) -> None:
        super().__init__(group_id, around, incarnation, instead_of)
        self._changed_ms = self._joined_ms = -CHANGES_FOR_MS
        self._assigner = Assigner(around.clock, self._compute_beside)
        self._looks = Looks(around.clock)

    # --- heartbeats -------------------------------------------------------------------------------

    def beat(self, asked: HeartbeatAsked, answer: AnswerHeartbeat) -> None:
        """A member joins or stays. `answer` is called once, when it may be known."""
        self._run(partial(self._beaten, asked), answer, "a heartbeat of a consumer group")

    def part(self, asked: HeartbeatAsked, answer: AnswerHeartbeat) -> None:
        """A member leaves, for good or for now."""
        self._run(partial(self._left, asked), answer, "the leaving of a member")

    def _beaten(self, asked: HeartbeatAsked, draft: Draft) -> HeartbeatAnswer:
        around, state = self._around, self._state
        images = self._beats.images
        if not state.exists and asked.epoch > 0:
            raise _not_found(self.group_id)
        settings = around.settings(self.group_id)
        topics = around.topics.seen()
        is_new = asked.member_id not in state.members
        outcome = decisions.heartbeat(
            draft,
            asked,
            topics,
            partial(self._assign, topics, settings),
            size_max=settings.size_max,
            now_ms=around.clock.wall_ms(),
            topics_changed=not topics.is_same(self._seen),
        )
        self._seen = topics
        if is_new:
            self._note_change(joined=True)
        self._timers.renew(outcome.member_id, settings.session_timeout_ms)
        wanted = self._looks.wanted(state, topics, asked.hidden, settings.pattern_refresh_ms)
        if wanted is not None and not around.beside(partial(self._look, Look(wanted))):
            self._looks.ended(None)
        if draft.changes:
            self._note_change()
        else:
            self._show(outcome.member_id, settings, topics, images)
        return HeartbeatAnswer(
            member_id=outcome.member_id,
            epoch=outcome.epoch,
            interval_ms=self._interval_ms(settings),
            assignment=outcome.assignment,
        )

    def take_over(
        self,
        upgrade: Upgrade,
        asked: HeartbeatAsked,
        answer: AnswerHeartbeat,
        enter: Callable[[], object],
    ) -> None:
        """A classic group becomes this one, which no other thread knows yet, when its first member
        of this protocol joins. `enter` makes it known, with its members."""
        answer = Once(answer)
        with self.lock:
            self._step(
                partial(self._taken_over, upgrade, asked), answer, "the upgrade of a classic group"
            )
        enter()
        self._outbox.run()

    def _taken_over(self, upgrade: Upgrade, asked: HeartbeatAsked, draft: Draft) -> HeartbeatAnswer:
        for change in upgrade.changes:
            draft.put(*change)
        self._begin_sessions()
        return self._beaten(asked, draft)

    def _left(self, asked: HeartbeatAsked, draft: Draft) -> HeartbeatAnswer:
        if not self._state.exists:
            raise _not_found(self.group_id)
        if decisions.left(draft, asked.member_id, asked.instance_id, asked.epoch):
            self._go(draft, {asked.member_id: Why.LEFT})
        self._note_change()
        return HeartbeatAnswer(member_id=asked.member_id, epoch=asked.epoch)

    def _note_change(self, *, joined: bool = False) -> None:
        self._changed_ms = self._around.clock.monotonic_ms()
        if joined:
            self._joined_ms = self._changed_ms

    def _show(self, member_id: str, settings: Settings, topics: TopicsSeen, images: int) -> None:
        """To C, which answers the member's next heartbeat if nothing changes until then."""
        if self._beats.are_other(settings):
            self._publish()
        until_ms = self._looks.due_ms(self._state, topics, settings.pattern_refresh_ms)
        if self._unwritten or self._committing or self._changes() or until_ms is None:
            return
        self._beats.show(
            self._state, member_id, generation=self._generation,
            interval_ms=settings.heartbeat_interval_ms, images=images, until_ms=until_ms,
        )  # fmt: skip

    def _changes(self) -> bool:
        """Whether a change of late has not had all its effects, as far as that is waited for."""
        now_ms = self._around.clock.monotonic_ms()
        return now_ms < self._changed_ms + CHANGES_FOR_MS and (
            self._state.state is not ConsumerGroupState.STABLE
            or now_ms < self._joined_ms + CHANGES_FOR_MS
            or self._looks.is_looking(self._state)
        )

    def _interval_ms(self, settings: Settings) -> int:
        """Until the next heartbeat: short while the group changes."""
        if not self._changes():
            self._around.quick.ended(self.group_id)
            return settings.heartbeat_interval_ms
        members, now_ms = len(self._state.members), self._around.clock.monotonic_ms()
        until_ms = self._changed_ms + CHANGES_FOR_MS
        if self._around.quick.may(self.group_id, members, until_ms, now_ms):
            return min(QUICK_MS, settings.heartbeat_interval_ms)
        return settings.heartbeat_interval_ms

    # --- assignments, and topics of patterns ------------------------------------------------------

    def _assign(self, topics: TopicsSeen, settings: Settings, draft: Draft) -> None:
        state = draft.state
        size = len(state.members) + sum(topics.partition_counts(state.topics()).values())
        found = self._assigner.targets(
            partial(question_of, state, topics, settings.assignors),
            size,
            settings.assignment_interval_ms,
        )
        if found is not None:
            decisions.assigned(draft, *found, self._around.clock.wall_ms())

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
            wall_ms = self._around.clock.wall_ms()
            if decisions.assigned(draft, question.epoch, targets, wall_ms):
                self._note_change()

    def _look(self, look: Look) -> None:
        """On the thread beside: a pattern, and then other groups have their turn."""
        goes_on = False
        found: Found | None = None
        try:
            if self.lost:
                return
            if look.match_one():
                goes_on = self._around.beside(partial(self._look, look))
            else:
                found = look.found
        finally:
            if not goes_on:
                self._come_back(
                    partial(self._looks.ended, None if found is None else look.wanted),
                    partial(self._matched, look.wanted, found),
                    "the topics of patterns",
                )

    def _matched(self, wanted: Wanted, found: Found | None, draft: Draft) -> None:
        if found is not None:
            version, topics = wanted.topics.version, self._around.topics.seen()
            decisions.matched(draft, found, version, topics, self._around.clock.wall_ms())
            if draft.changes:
                self._note_change()

    def _patterns_unwritten(self) -> None:
        self._looks.unwritten()

    # --- timers -----------------------------------------------------------------------------------

    def _session_timer(self, member_id: str, token: int) -> None:
        self._run(partial(self._session_over, member_id, token), None, "the end of a session")

    def _session_over(self, member_id: str, token: int, draft: Draft) -> None:
        if self._timers.is_session_over(member_id, token):
            self._put_out(member_id, draft, Why.SESSION_OVER)

    def _owed_timer(self, member_id: str, token: int) -> None:
        self._run(partial(self._owed_over, member_id, token), None, "the time for an owed request")

    def _owed_over(self, member_id: str, token: int, draft: Draft) -> None:
        owes = self._timers.is_owed_over(member_id, token)
        state = self._state.current_of(member_id).state
        if owes is Owes.NOTHING or (owes is Owes.REVOCATION and state is not MemberState.UNREVOKED):
            return
        self._put_out(member_id, draft, _LATE[owes])

    def _put_out(self, member_id: str, draft: Draft, why: Why) -> None:
        if member_id in self._state.members:
            self._go(draft, {member_id: why})

    # --- offsets ----------------------------------------------------------------------------------

    def admit_commit(self, asked: CommitAsked) -> Admission:
        """Whether offsets may be committed, and the number under which C may write them."""
        with self.lock:
            if self.lost or self._deleting:
                return Admission(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            state = self._state
            code = decisions.commit_error(
                state,
                asked.member_id,
                asked.generation,
                asked.partitions,
                version=asked.version,
                in_transaction=asked.in_transaction,
            )
            if code:
                return Admission(code)
            if asked.generation < 0 and (not state.members or not asked.member_id):
                return Admission(NONE, _NO_GENERATION, is_final=True)
            return Admission(NONE, self._generation, is_final=True)

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member may read the offsets."""
        with self.lock:
            if self._turning:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return decisions.fetch_error(self._state, member_id, epoch)

    def readers(self) -> tuple[ErrorCode, frozenset[str] | None]:
        """The topics that its members subscribe to: their offsets are not to be deleted."""
        with self.lock:
            if self._turning:  # its members are of the classic group that comes
                return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
            return NONE, frozenset(self._state.topics())

    def aged(self) -> GroupAge:
        """An offset expires by its own time, unless a member subscribes to its topic."""
        _, topics = self.readers()
        return GroupAge(ClassicState.STABLE, CONSUMER, -1, topics)

    # --- descriptions -----------------------------------------------------------------------------

    def described(self) -> GroupDescription | None:
        """It is no classic group."""
        return None

    def listed(self) -> GroupListing:
        return GroupListing(self.group_id, self.state, CONSUMER, CONSUMER)

    @property
    def exists(self) -> bool:
        return self._state.exists and not self.lost

    @property
    def is_empty(self) -> bool:
        """Not while it turns into a classic group: then members are of that one."""
        return not self._state.members and not self._turning

    @property
    def member_count(self) -> int:
        return len(self._state.members)

    @property
    def state(self) -> ConsumerGroupState:
        with self.lock:
            return ConsumerGroupState.DEAD if self.lost else self._state.state

    def description(self) -> Description:
        assignors = self._around.settings(self.group_id).assignors
        with self.lock:
            state = self._state
            members = tuple(
                DescribedMember(
                    member_id,
                    member.instance_id,
                    member.rack_id,
                    state.current_of(member_id).epoch,
                    member.client_id,
                    member.client_host,
                    member.topics,
                    member.pattern,
                    partitions_of(state.current_of(member_id).assigned),
                    state.target_of(member_id),
                    member.classic is not None,
                )
                for member_id, member in state.members.items()
            )
            return Description(
                self.group_id,
                state.state,
                state.epoch,
                state.assignment_epoch,
                assignor_of(state, assignors),
                members,
            )


def _not_found(group_id: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
