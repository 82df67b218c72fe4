"""What a share group asks of the share coordinator: questions under way, and what came of them.

    wanted                share-partitions that are to get a state, and those that are to lose it
    want -> waiting       where they are not under way, and have not failed just now
    next -> under way     no more than UNDER_WAY_MAX, so that other groups have room in the queue
    came -> kept          the answer is noted at once
    take                  all that came, for one step of the group: its record has all topics

A question that is answered with an error is asked again after a pause, PAUSE_MS at first, and then
twice as long each time. One that is not answered is asked again too, after a longer time, that of
the group's settings; the state is then begun twice, which is the same.

No lock of its own: the group's is held.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.topics import TopicsSeen
    from kbroker.coordinator.share.seams import Outcome
    from kbroker.coordinator.share_group.images import StateTopics

UNDER_WAY_MAX: Final = 500
PAUSE_MS: Final = 1_000
# The persister answers within this time. A state that begins twice must not do so when the first
# answer is known, and members read it.
LOST_MS_MIN: Final = 30_000

Indexes = Mapping[UUID, frozenset[int]]  # partitions by topic


class StateQuestion(NamedTuple):
    """Whether a state begins, or is to be deleted."""

    topic_id: UUID
    partition: int
    deletes: bool = False

    def is_wanted(self, kept: StateTopics) -> bool:
        if self.deletes:
            return self.topic_id in kept.deleting
        some, begun = kept.initializing.get(self.topic_id), kept.initialized.get(self.topic_id)
        if some is None or self.partition not in some.partitions:
            return False
        return begun is None or self.partition not in begun.partitions


class Came(NamedTuple):
    """`deleted`: all of topics of which others are still to be deleted. `is_fenced`: some state is
    of a group that had this id before. `failed`: how many by code."""

    begun: Indexes
    deleted: Indexes
    is_fenced: bool
    failed: Mapping[ErrorCode, int]


class _Pause(NamedTuple):
    until_ms: int
    ms: int


def wanted(kept: StateTopics, topics: TopicsSeen) -> Iterator[StateQuestion]:
    """All that is to be asked. It is not known which partitions of a topic that loses its states
    have one: all are deleted."""
    for topic_id in kept.initializing:
        for index in sorted(_without_state(kept, topic_id)):
            yield StateQuestion(topic_id, index)
    for topic_id in kept.deleting:
        for index in range(topics.partition_count(topic_id)):
            yield StateQuestion(topic_id, index, deletes=True)


def _without_state(kept: StateTopics, topic_id: UUID) -> frozenset[int]:
    """Those that are to get one, other than those of an alteration that was not ended: their state
    stays."""
    some, begun = kept.initializing.get(topic_id), kept.initialized.get(topic_id)
    if some is None:
        return frozenset()
    return some.partitions if begun is None else some.partitions - begun.partitions


def has_no_state(outcome: Outcome) -> bool:
    """Of a deletion. A topic that is no more, or no such partition of it, has no state."""
    return outcome.code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class StateQuestions:
    """See the module. Times are monotonic."""

    __slots__ = (
        "_asked_ms", "_begun", "_came_ms", "_deleted", "_failed", "_fenced", "_next_ms", "_pauses",
        "_waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self._waiting: deque[StateQuestion] = deque()
        self._asked_ms: dict[StateQuestion, int] = {}  # those under way
        self._pauses: dict[StateQuestion, _Pause] = {}  # those that failed
        self._begun: set[StateQuestion] = set()
        self._deleted: set[StateQuestion] = set()
        self._fenced: set[StateQuestion] = set()
        self._failed: Counter[ErrorCode] = Counter()
        self._came_ms: int | None = None  # the first that is not taken
        self._next_ms: int | None = None  # when there is something to ask; None: nothing is wanted

    def want(self, questions: Sequence[StateQuestion], now_ms: int, lost_ms: int) -> None:
        """`questions`: all that are wanted; `lost_ms`: after so long one without an answer is asked
        again."""
        known, lost_ms = set(questions), max(lost_ms, LOST_MS_MIN)
        self._asked_ms = {
            each: asked_ms
            for each, asked_ms in self._asked_ms.items()
            if each in known and asked_ms + lost_ms > now_ms
        }
        self._pauses = {each: pause for each, pause in self._pauses.items() if each in known}
        self._deleted &= known
        self._fenced &= known
        self._waiting.clear()
        times: list[int] = [asked_ms + lost_ms for asked_ms in self._asked_ms.values()]
        for each in questions:
            pause = self._pauses.get(each)
            if pause is not None and pause.until_ms > now_ms:
                times.append(pause.until_ms)
            else:
                self._waiting.append(each)
        if self._waiting:
            times.append(now_ms + lost_ms)
        self._next_ms = min(times, default=None)

    def next(self, kept: StateTopics, now_ms: int) -> list[StateQuestion]:
        """Those to be asked now, if they are still wanted."""
        found: list[StateQuestion] = []
        while self._waiting and len(self._asked_ms) < UNDER_WAY_MAX:
            each = self._waiting.popleft()
            is_asked = each in self._asked_ms or each in self._begun or each in self._deleted
            if not is_asked and each.is_wanted(kept):
                self._asked_ms[each] = now_ms
                found.append(each)
        return found

    def came(
        self, question: StateQuestion, outcome: Outcome, now_ms: int, pause_ms_max: int
    ) -> bool:
        """Whether it was the last one under way."""
        if self._asked_ms.pop(question, None) is None:
            return False  # it has ended otherwise
        if self._came_ms is None:
            self._came_ms = now_ms
        is_good = has_no_state(outcome) if question.deletes else not outcome.code
        if is_good:
            self._pauses.pop(question, None)
            self._fenced.discard(question)
            (self._deleted if question.deletes else self._begun).add(question)
            return not self._asked_ms
        self._failed[outcome.code] += 1
        if outcome.code is ErrorCode.FENCED_STATE_EPOCH and question not in self._fenced:
            self._fenced.add(question)
            return not self._asked_ms
        before = self._pauses.get(question)
        longer_ms = 0 if before is None else min(2 * before.ms, pause_ms_max)
        pause_ms = max(PAUSE_MS, longer_ms)
        self._pauses[question] = _Pause(now_ms + pause_ms, pause_ms)
        at_ms = now_ms + pause_ms
        self._next_ms = at_ms if self._next_ms is None else min(self._next_ms, at_ms)
        return not self._asked_ms

    def is_fenced(self, question: StateQuestion) -> bool:
        """Whether there is a state of a later epoch than the group's: it is of a group that had
        this id before, and that was deleted while its question was on the way."""
        return question in self._fenced

    def forget(self, topic_ids: Iterable[UUID]) -> None:
        """What was asked about these topics, or came of it, is not their state any more."""
        gone = frozenset(topic_ids)
        for each in [each for each in self._asked_ms if each.topic_id in gone]:
            del self._asked_ms[each]
        self._waiting = deque(each for each in self._waiting if each.topic_id not in gone)
        self._begun = {each for each in self._begun if each.topic_id not in gone}
        self._deleted = {each for each in self._deleted if each.topic_id not in gone}
        self._fenced = {each for each in self._fenced if each.topic_id not in gone}

    def is_due(self, now_ms: int) -> bool:
        """Whether there is something to take, or to ask. While others are to be answered, what came
        waits a little for them."""
        is_over = not self._asked_ms and not self._waiting
        if self._came_ms is not None and (is_over or self._came_ms + PAUSE_MS <= now_ms):
            return True
        return self._next_ms is not None and self._next_ms <= now_ms

    def take(self) -> Came:
        """What came since the last time."""
        deleted, is_fenced = _by_topic(self._deleted), bool(self._fenced)
        came = Came(_by_topic(self._begun), deleted, is_fenced, dict(self._failed))
        self._begun.clear()
        self._failed.clear()
        self._came_ms = None
        return came


def _by_topic(questions: set[StateQuestion]) -> Indexes:
    found: dict[UUID, set[int]] = {}
    for topic_id, index, _ in questions:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(some) for topic_id, some in found.items()}
