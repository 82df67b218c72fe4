"""When a group gets another target assignment, and how it is computed.

    cheap      at once, in the heartbeat that finds the group's epoch higher than its target's
    else       beside, on a thread of its own (`beside.py`), and not more often than once in
               TIMES_ITS_TIME times the time that the last one took, and in assignment.interval.ms

So a second member does not wait for an interval that is for large groups, as Apache Kafka's 4.3
does (KIP-1263). What is cheap is estimated from the last computation: its time for each member and
partition. A look at an empty group costs nothing.

`compute` is pure. An `Assigner` belongs to its group and is used under the group's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kbroker.clock import NS_PER_MS
from kbroker.coordinator.group.assignors import Subscriber, assign

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.clock import Clock
    from kbroker.coordinator.consumer_group.images import Partitions
    from kbroker.coordinator.consumer_group.state import GroupState
    from kbroker.coordinator.consumer_group.topics import TopicsSeen

Targets = Mapping[str, "Partitions"]

CHEAP_NS: Final = 5 * NS_PER_MS
TIMES_ITS_TIME: Final = 20
# Of a group without a last one: for each of its members and partitions.
FIRST_GUESS_NS: Final = 2_000


class Asked(Protocol):
    """A question of any protocol."""

    @property
    def epoch(self) -> int: ...

    @property
    def size(self) -> int: ...


class Question(NamedTuple):
    """All that an assignment follows from; nothing in it changes."""

    epoch: int
    assignor: str
    members: Sequence[Subscriber]
    partition_counts: Mapping[UUID, int]

    @property
    def size(self) -> int:
        return len(self.members) + sum(self.partition_counts.values())


def question_of(state: GroupState, topics: TopicsSeen, assignors: Sequence[str]) -> Question:
    """Members that subscribe alike share one tuple."""
    known: dict[tuple[tuple[str, ...], str], tuple[UUID, ...]] = {}
    members = []
    for member_id, member in state.members.items():
        alike = (member.topics, member.pattern)
        ids = known.get(alike)
        if ids is None:
            ids = known[alike] = topics.ids_in_order(state.topics_of(member))
        target = state.target_of(member_id)
        members.append(Subscriber(member_id, member.instance_id, ids, target))
    counts = topics.partition_counts(state.topics())
    return Question(state.epoch, assignor_of(state, assignors), members, counts)


def assignor_of(state: GroupState, assignors: Sequence[str]) -> str:
    """The one that most members ask for; else the first of the broker's."""
    votes = Counter(
        member.assignor for member in state.members.values() if member.assignor in assignors
    )
    if not votes:
        return assignors[0]
    most = max(votes.values())
    return next(name for name in assignors if votes[name] == most)


def compute(question: Question) -> Targets:
    found = assign(question.assignor, question.members, question.partition_counts)
    return {
        member.member_id: {topic: frozenset(some) for topic, some in target.items() if some}
        for member, target in zip(question.members, found, strict=True)
    }


class Assigner:
    """See the module. `beside` takes a question; its answer comes to `answered`."""

    __slots__ = ("_beside", "_clock", "_compute", "_computing", "_next_ns", "_unit_ns")

    def __init__(
        self,
        clock: Clock,
        beside: Callable[[Any], bool],
        compute: Callable[[Any], Mapping[str, Any]] = compute,
    ) -> None:
        """`beside` returns False where it takes nothing now. `compute`: for questions of another
        protocol."""
        self._compute = compute
        self._clock = clock
        self._beside = beside
        self._computing = False
        self._next_ns = 0
        self._unit_ns = float(FIRST_GUESS_NS)

    def targets(
        self, question: Callable[[], Asked], size: int, interval_ms: int
    ) -> tuple[int, Mapping[str, Any]] | None:
        """An epoch with its targets, if they are computed at once. `size`: of the question."""
        now_ns = self._clock.monotonic_ns()
        if self._computing or now_ns < self._next_ns:
            return None
        if size * self._unit_ns >= CHEAP_NS:
            self._computing = self._beside(question())
            return None
        asked = question()
        found = self._compute(asked)
        self.took(asked, self._clock.monotonic_ns() - now_ns, interval_ms)
        return asked.epoch, found

    def took(self, question: Asked, time_ns: int, interval_ms: int) -> None:
        self._unit_ns = max(1.0, time_ns / max(1, question.size))
        if time_ns >= CHEAP_NS:
            pause_ns = max(TIMES_ITS_TIME * time_ns, interval_ms * NS_PER_MS)
            self._next_ns = self._clock.monotonic_ns() + pause_ns

    def answered(self, question: Asked, time_ns: int, interval_ms: int) -> None:
        """What was computed beside has come back, or has failed."""
        self._computing = False
        self.took(question, time_ns, interval_ms)
