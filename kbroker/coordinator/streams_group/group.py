"""One streams group: the requests, timers and results that reach it.

Place in the flow: the coordinator finds the group; a public method here has a step of it taken
(`consumer_group/record_steps.py`), which decides with `decisions.py`. What a heartbeat tells beside
the member's epoch is put together under the lock, and sent when the followers have what it rests
on. Topics of the application that are missing are passed to the handler, which has them made.

Any thread; the group's lock is taken here and held for no write, answer or question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.consumer_group.assignments import Assigner
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer, Refused
from kbroker.coordinator.consumer_group.quick import CHANGES_FOR_MS, QUICK_MS
from kbroker.coordinator.consumer_group.record_steps import GroupAround
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.consumer_group.timers import Owes
from kbroker.coordinator.group.expiration import GroupAge
from kbroker.coordinator.group.messages import (
    Admission,
    GroupListing,
    JoinAnswer,
    LeaveAnswer,
    SyncAnswer,
)
from kbroker.coordinator.group.states import GroupState as ClassicState
from kbroker.coordinator.group.step import Once
from kbroker.coordinator.runtime.deadline import Deadline
from kbroker.coordinator.streams_group import decisions
from kbroker.coordinator.streams_group.assignor import Parts, Worker, assign
from kbroker.coordinator.streams_group.confirmed import Confirmed
from kbroker.coordinator.streams_group.endpoints import endpoints_of
from kbroker.coordinator.streams_group.images import (
    InternalTopic,
    Kind,
    Pairs,
    TaskSet,
    TopologyImage,
)
from kbroker.coordinator.streams_group.messages import (
    DescribedMember,
    Description,
    EndpointPartitions,
    HeartbeatDone,
    StreamsAnswer,
)
from kbroker.coordinator.streams_group.state import StreamsGroupLabel
from kbroker.coordinator.streams_group.steps import StreamsSteps
from kbroker.coordinator.streams_group.topology import (
    Configured,
    Status,
    StatusCode,
    configured,
)
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.config.group_settings import StreamsSettings
    from kbroker.coordinator.consumer_group.drafts import AnyChange
    from kbroker.coordinator.consumer_group.settings import Settings
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.group.images import GroupImage as ClassicImage
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
    from kbroker.coordinator.streams_group.messages import AnswerStreams, HeartbeatAsked
    from kbroker.coordinator.streams_group.state import Draft, StreamsGroupState

STREAMS: Final = "streams"
STANDBYS: Final = "num.standby.replicas"
_NONE: Final = ErrorCode.NONE
_UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID
_NO_GENERATION: Final = -1
# Of the endpoints' table before any member has an endpoint.
_NO_ENDPOINTS: Final = 0

# A change of these may change the table.
_OF_ENDPOINTS: Final = (Kind.MEMBER, Kind.CURRENT, Kind.TOPOLOGY)

Endpoints = tuple[EndpointPartitions, ...]
Targets = Mapping[str, TaskSet]


class Question(NamedTuple):
    """All that an assignment follows from; nothing in it changes."""

    epoch: int
    workers: Sequence[Worker]
    parts: Parts
    standbys: int

    @property
    def size(self) -> int:
        return len(self.workers) + sum(self.parts.task_counts.values())


def compute(question: Question) -> Targets:
    return assign(question.workers, question.parts, question.standbys)


class _Beside:
    """What a heartbeat is answered with beside the epoch; empty until it is decided."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done: HeartbeatDone | None = None


class StreamsGroup(StreamsSteps):
    """See the module."""

    __slots__ = (
        "_assigner", "_changed_ms", "_configured", "_confirmed", "_endpoint_epoch", "_endpoints",
        "_first_target", "_joined_ms", "_own", "_shut_down_by", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        group_id: str,
        around: GroupAround,
        incarnation: int,
        own: Callable[[str], StreamsSettings],
        instead_of: ClassicImage | None = None,
    ) -> None:
        """`own`: the settings of a streams group, by its id."""
        super().__init__(group_id, around, incarnation, instead_of)
        self._own = own
        self._changed_ms = self._joined_ms = -CHANGES_FOR_MS
        self._assigner = Assigner(around.clock, self._compute_beside, compute)
        self._confirmed = Confirmed()
        self._configured: tuple[TopologyImage, TopicsSeen, Configured] | None = None
        self._endpoint_epoch = _NO_ENDPOINTS
        self._endpoints: tuple[TopicsSeen, Endpoints] | None = None
        self._shut_down_by: str | None = None  # the member that has asked for it
        self._waiting = False  # the first target waits for more members
        self._first_target = Deadline(around.later(group_id), self._first_target_timer)

    # --- heartbeats -------------------------------------------------------------------------------

    def beat(self, asked: HeartbeatAsked, answer: AnswerStreams) -> None:
        """A member joins or stays. `answer` is called once, when it may be known."""
        beside = _Beside()
        self._run(
            partial(self._beaten, asked, beside),
            lambda found: answer(_answer_of(found, beside)),
            "a heartbeat of a streams group",
        )

    def part(self, asked: HeartbeatAsked, answer: AnswerStreams) -> None:
        """A member leaves."""
        self._run(
            partial(self._left, asked),
            lambda found: answer(_answer_of(found, None)),
            "the leaving of a member",
        )

    def take_over(
        self, asked: HeartbeatAsked, answer: AnswerStreams, enter: Callable[[], object]
    ) -> None:
        """An empty classic group makes room for this one, which no other thread knows yet. `enter`
        makes it known, with its first member."""
        beside = _Beside()
        with self.lock:
            self._step(
                partial(self._beaten, asked, beside),
                Once(lambda found: answer(_answer_of(found, beside))),
                "a streams group in the place of a classic one",
            )
        enter()
        self._outbox.run()

    def _beaten(self, asked: HeartbeatAsked, beside: _Beside, draft: Draft) -> HeartbeatAnswer:
        around, state = self._around, self._state
        if not state.exists and asked.epoch > 0:
            raise _not_found(self.group_id)
        settings, own = around.settings(self.group_id), self._own(self.group_id)
        topics = around.topics.seen()
        is_new, is_new_group = asked.member_id not in state.members, not state.exists
        begins = not state.members and own.initial_rebalance_delay_ms > 0 and not self._waiting
        before = state.current_of(asked.member_id)
        outcome = decisions.heartbeat(
            draft,
            asked,
            decisions.Now(
                topics,
                partial(self._with_topics, topics),
                partial(self._assign, own, settings),
                settings.size_max,
                _configs(own),
                waits=self._waiting or begins,
                look=not topics.is_same(self._seen),
                said=self._said(asked),
            ),
        )
        self._seen = topics
        if is_new:
            self._joined_ms = around.clock.monotonic_ms()
        if draft.changes:
            self._changed_ms = around.clock.monotonic_ms()
        if asked.shuts_down:
            self._shut_down_by = asked.member_id
        if outcome.tasks is not None and not is_new_group:
            self._endpoints_change(asked.member_id)
        beside.done = self._done(asked, draft, outcome, topics)
        answer = HeartbeatAnswer(
            member_id=asked.member_id,
            epoch=outcome.epoch,
            interval_ms=self._interval_ms(settings, outcome.configured),
        )
        # Last of all: a heartbeat that is refused, or fails, begins no time.
        self._confirmed.received(asked, before, state.current_of(asked.member_id))
        now_ms = around.clock.monotonic_ms()
        self._confirmed.waits(asked.member_id, now_ms if outcome.is_unconfirmed else None)
        if begins:
            self._first_target.set(own.initial_rebalance_delay_ms)
            self._waiting = True
        self._timers.renew(asked.member_id, settings.session_timeout_ms)
        self._session_begun(asked.member_id)
        return answer

    def _said(self, asked: HeartbeatAsked) -> TaskSet | None:
        member = self._state.members.get(asked.member_id)
        if member is None:
            return None
        current = self._state.current_of(asked.member_id)
        now_ms = self._around.clock.monotonic_ms()
        return self._confirmed.said(asked, current, now_ms, member.rebalance_timeout_ms)

    def _endpoints_change(self, member_id: str) -> None:
        """Those of a new group are in its first answer; as in Apache Kafka they have epoch 0."""
        if self._state.members[member_id].endpoint is not None:
            self._endpoint_epoch += 1

    def _done(
        self, asked: HeartbeatAsked, draft: Draft, outcome: decisions.Outcome, topics: TopicsSeen
    ) -> HeartbeatDone:
        endpoints = None
        if asked.endpoint_epoch != self._endpoint_epoch:
            endpoints = self._endpoints_now(draft.changes, topics)
        statuses = outcome.statuses
        if self._shut_down_by is not None:
            words = (
                f"Streams group member {self._shut_down_by} encountered a fatal error and requested"
                " a shutdown for the entire application."
            )
            statuses = (*statuses, Status(StatusCode.SHUTDOWN_APPLICATION, words))
        return HeartbeatDone(
            outcome.tasks, statuses, self._endpoint_epoch, endpoints, self._missing(asked, outcome)
        )

    def _missing(
        self, asked: HeartbeatAsked, outcome: decisions.Outcome
    ) -> tuple[InternalTopic, ...]:
        """Topics that are made for this member: it has the topology that they belong to."""
        state = self._state
        topology, member = state.topology, state.members[asked.member_id]
        if topology is None or member.topology_epoch != topology.epoch:
            return ()
        return outcome.configured.missing

    def _endpoints_now(self, changes: Sequence[AnyChange], topics: TopicsSeen) -> Endpoints | None:
        """`changes`: those of the step. They may be taken back, so nothing is kept with them."""
        state, known = self._state, self._endpoints
        if state.topology is None:
            return None
        is_as_before = not _changes_endpoints(changes)
        if is_as_before and known is not None and topics.is_same(known[0]):
            return known[1]
        found = endpoints_of(state, state.topology, lambda name: topics.count_of(name) or 0)
        if is_as_before:
            self._endpoints = topics, found
        return found

    def _follow(self, changes: Iterable[AnyChange]) -> None:
        changes = tuple(changes)
        if _changes_endpoints(changes):
            self._endpoints = None
        for kind, key, _ in changes:
            if kind == Kind.MEMBER and key not in self._state.members:
                self._confirmed.forget(key)
        super()._follow(changes)

    def _left(self, asked: HeartbeatAsked, draft: Draft) -> HeartbeatAnswer:
        if not self._state.exists:
            raise _not_found(self.group_id)
        if asked.member_id not in self._state.members:
            raise decisions.unknown(asked.member_id, self.group_id)
        if asked.shuts_down:
            self._shut_down_by = asked.member_id
        self._remove(asked.member_id, draft)
        return HeartbeatAnswer(member_id=asked.member_id, epoch=asked.epoch)

    def _remove(self, member_id: str, draft: Draft) -> None:
        decisions.removed(draft, [member_id])
        self._changed_ms = self._around.clock.monotonic_ms()
        if not self._state.members:
            self._shut_down_by = None

    def _interval_ms(self, settings: Settings, found: Configured) -> int:
        """Until the next heartbeat: short while the group changes."""
        now_ms = self._around.clock.monotonic_ms()
        until_ms = self._changed_ms + CHANGES_FOR_MS
        state = self._state
        is_young = now_ms < self._joined_ms + CHANGES_FOR_MS
        is_late = bool(found.missing) or state.label is not StreamsGroupLabel.STABLE
        if now_ms >= until_ms or not (is_young or is_late):
            self._around.quick.ended(self.group_id)
            return settings.heartbeat_interval_ms
        if self._around.quick.may(self.group_id, len(state.members), until_ms, now_ms):
            return min(QUICK_MS, settings.heartbeat_interval_ms)
        return settings.heartbeat_interval_ms

    # --- the topology, and assignments ------------------------------------------------------------

    def _with_topics(self, topics: TopicsSeen, topology: TopologyImage) -> Configured:
        known = self._configured
        if known is None or known[0] is not topology or not topics.is_same(known[1]):
            found = configured(topology, topics.count_of)
            known = self._configured = topology, topics, found
        return known[2]

    def _assign(
        self, own: StreamsSettings, settings: Settings, draft: Draft, found: Configured
    ) -> None:
        state = draft.state
        size = len(state.members) + sum(found.task_counts.values())
        targets = self._assigner.targets(
            partial(self._question, state, own, found), size, settings.assignment_interval_ms
        )
        if targets is not None:
            decisions.assigned(draft, *targets, self._around.clock.wall_ms())

    def _question(
        self, state: StreamsGroupState, own: StreamsSettings, found: Configured
    ) -> Question:
        workers = [
            Worker(member_id, member.process_id, state.target_of(member_id))
            for member_id, member in state.members.items()
        ]
        counts = found.task_counts if found.is_ready else {}
        parts = () if state.topology is None else state.topology.subtopologies
        stateful = frozenset(each.subtopology_id for each in parts if each.changelogs)
        return Question(state.epoch, workers, Parts(counts, stateful), own.standby_replicas)

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
                self._changed_ms = self._around.clock.monotonic_ms()

    # --- timers -----------------------------------------------------------------------------------

    def _first_target_timer(self, token: int) -> None:
        """The wait is over also where nothing is decided now, since the group is being removed."""
        self._come_back(
            partial(self._wait_ended, token), self._first_target_due, "the first target of a group"
        )

    def _wait_ended(self, token: int) -> None:
        if self._first_target.is_due(token):
            self._waiting = False

    def _first_target_due(self, draft: Draft) -> None:
        state = self._state
        if self._waiting or state.topology is None or not state.members:
            return
        if state.epoch > state.assignment_epoch:
            found = self._with_topics(self._around.topics.seen(), state.topology)
            settings = self._around.settings(self.group_id)
            self._assign(self._own(self.group_id), settings, draft, found)
            self._changed_ms = self._around.clock.monotonic_ms()

    def _session_timer(self, member_id: str, token: int) -> None:
        self._run(partial(self._session_over, member_id, token), None, "the end of a session")

    def _session_over(self, member_id: str, token: int, draft: Draft) -> None:
        if self._timers.is_session_over(member_id, token) and member_id in self._state.members:
            self._remove(member_id, draft)

    def _owed_timer(self, member_id: str, token: int) -> None:
        self._run(partial(self._owed_over, member_id, token), None, "the time for an owed request")

    def _owed_over(self, member_id: str, token: int, draft: Draft) -> None:
        if self._timers.is_owed_over(member_id, token) is not Owes.REVOCATION:
            return
        is_late = self._state.current_of(member_id).state is MemberState.UNREVOKED
        if is_late and member_id in self._state.members:
            self._remove(member_id, draft)

    def unload(self) -> None:
        with self.lock:
            self._first_target.clear()
        super().unload()

    # --- the classic protocol ---------------------------------------------------------------------

    def join(self, asked: JoinAsked, answer: AnswerJoin) -> None:
        code = ErrorCode.NOT_COORDINATOR if self.lost else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        answer(JoinAnswer(code, asked.member_id))

    def sync(self, asked: SyncAsked, answer: AnswerSync) -> None:
        answer(SyncAnswer(_UNKNOWN))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        return _UNKNOWN

    def leave(self, leavers: Sequence[Leaver], answer: AnswerLeave) -> None:
        answer(LeaveAnswer(_NONE, (_UNKNOWN,) * len(leavers)))

    # --- offsets ----------------------------------------------------------------------------------

    def admit_commit(self, asked: CommitAsked) -> Admission:
        """Whether offsets may be committed, and the number under which C may write them."""
        topics = self._around.topics.seen()

        def named() -> list[tuple[str, int]]:
            return [(topics.name_of(id_) or "", index) for id_, index in asked.partitions()]

        with self.lock:
            if self.lost or self._deleting:
                return Admission(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            state = self._state
            code = decisions.commit_error(
                state,
                asked.member_id,
                asked.generation,
                named,
                version=asked.version,
                in_transaction=asked.in_transaction,
            )
            if code:
                return Admission(code)
            if asked.generation < 0 and (not state.members or not asked.member_id):
                return Admission(_NONE, _NO_GENERATION, is_final=True)
            return Admission(_NONE, self._generation, is_final=True)

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member may read the offsets."""
        with self.lock:
            return decisions.fetch_error(self._state, member_id, epoch)

    def readers(self) -> tuple[ErrorCode, frozenset[str] | None]:
        """The topics that its tasks read: their offsets are not to be deleted. None: any may be
        one, since the record of the topology is lost."""
        with self.lock:
            topology = self._state.topology
            if not self._state.members:
                return _NONE, frozenset()
            return _NONE, None if topology is None else frozenset(topology.inputs())

    def aged(self) -> GroupAge:
        """An offset expires by its own time, unless a task reads its topic."""
        _, topics = self.readers()
        return GroupAge(ClassicState.STABLE, STREAMS, -1, topics)

    # --- descriptions -----------------------------------------------------------------------------

    def described(self) -> GroupDescription | None:
        """It is no classic group."""
        return None

    def listed(self) -> GroupListing:
        return GroupListing(self.group_id, self.state, STREAMS, STREAMS)

    @property
    def exists(self) -> bool:
        return self._state.exists and not self.lost

    @property
    def is_empty(self) -> bool:
        return not self._state.members

    @property
    def member_count(self) -> int:
        return len(self._state.members)

    @property
    def state(self) -> StreamsGroupLabel:
        with self.lock:
            return StreamsGroupLabel.DEAD if self.lost else self._state.label

    def description(self) -> Description:
        topics = self._around.topics.seen()
        with self.lock:
            state, topology = self._state, self._state.topology
            parts = () if topology is None else topology.subtopologies
            if topology is not None:
                counts = self._with_topics(topics, topology).counts
                parts = tuple(
                    each._replace(
                        changelogs=_counted(each.changelogs, counts),
                        repartition_sources=_counted(each.repartition_sources, counts),
                    )
                    for each in parts
                )
            members = tuple(
                DescribedMember(
                    member_id,
                    state.current_of(member_id).epoch,
                    member,
                    state.current_of(member_id).assigned.plain(),
                    state.target_of(member_id),
                )
                for member_id, member in state.members.items()
            )
            return Description(
                self.group_id,
                state.label,
                state.epoch,
                state.assignment_epoch,
                None if topology is None else topology.epoch,
                parts,
                frozenset() if topology is None else frozenset(topology.required()),
                members,
            )


def _answer_of(found: HeartbeatAnswer, beside: _Beside | None) -> StreamsAnswer:
    return StreamsAnswer(
        found.code,
        found.message,
        found.member_id or "",
        found.epoch,
        found.interval_ms,
        None if found.code or beside is None else beside.done,
    )


def _changes_endpoints(changes: Iterable[AnyChange]) -> bool:
    return any(each.kind in _OF_ENDPOINTS for each in changes)


def _not_found(group_id: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def _configs(own: StreamsSettings) -> Pairs:
    return ((STANDBYS, str(own.standby_replicas)),)


def _counted(some: Sequence[InternalTopic], counts: Mapping[str, int]) -> tuple[InternalTopic, ...]:
    return tuple(each._replace(partitions=counts.get(each.name, each.partitions)) for each in some)
