"""Requests about the offsets of a share group: each a step, questions, and another step.

    alter            initialize, from the offsets that the client names
    delete_offsets   delete, of whole topics

The records of the first step are in the log when the share coordinator is asked; the second one has
what came of it (`offset_decisions.py`). The questions of a request are asked when those of the
request before it are answered, so the share coordinator does them in the order of the steps.

`_claims` has the request that a share-partition waits for: a later one takes it over, and the end
of the earlier one leaves it alone. Heartbeats ask for states, too (`questions.py`): not for those
that a request has claimed, but for those that are left when it has ended.

Part of `group.ShareGroup`, with its lock, which is not held for a question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer
from kbroker.coordinator.consumer_group.record_steps import GroupAround, RecordSteps
from kbroker.coordinator.runtime.deadline import OnWorker
from kbroker.coordinator.share.gathering import Gathering
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.seams import Outcome
from kbroker.coordinator.share_group import offset_decisions
from kbroker.coordinator.share_group.messages import AlterAsked, Altered, OffsetsDeleted
from kbroker.coordinator.share_group.questions import UNDER_WAY_MAX, has_no_state
from kbroker.coordinator.share_group.state import Draft, ShareGroupState
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.share.seams import Persister
    from kbroker.coordinator.share_group.images import ByTopic

_NONE = ErrorCode.NONE
_FAILED: Final = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR)
_TOO_LATE: Final = Outcome(ErrorCode.REQUEST_TIMED_OUT)
# Of the share coordinator, which the client of a group knows nothing of.
_AWAY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

# Of a request, for its questions and those of requests before it.
ASKING_MS_MAX: Final = 60_000

Outcomes = Mapping[SharePartition, Outcome]
Ask = Callable[["Persister", SharePartition, Callable[[Outcome], None]], object]


class Claim:
    """A request for states of share-partitions; its identity is all that counts."""

    __slots__ = ()


class OffsetSteps(RecordSteps[ShareGroupState]):
    """See the module."""

    __slots__ = ("_claims", "_on_worker", "_persister", "_requests")

    def __init__(
        self,
        group_id: str,
        around: GroupAround,
        incarnation: int,
        persister: Callable[[], Persister],
        on_worker: OnWorker,
    ) -> None:
        super().__init__(group_id, around, incarnation)
        self._persister = persister
        self._on_worker = on_worker
        self._claims: dict[tuple[UUID, int], Claim] = {}
        # Their questions; those of the first are asked.
        self._requests: deque[Gathering[SharePartition, Outcome]] = deque()

    # With the lock held.
    def _taken_over(self, topic_ids: Iterable[UUID]) -> None:
        """Questions of heartbeats about these topics are of no use any more."""
        raise NotImplementedError

    def _released(self) -> None:
        """Heartbeats are to look for questions that are left."""
        raise NotImplementedError

    # --- questions --------------------------------------------------------------------------------

    def _late_after(self, time_ms: int) -> Callable[[], bool]:
        """Whether so much time has gone by since this call."""
        clock = self._around.clock
        ends_ms = clock.monotonic_ms() + time_ms
        return lambda: clock.monotonic_ms() >= ends_ms

    def _claim(self, keys: Iterable[SharePartition], claim: Claim) -> None:
        """With the lock held."""
        places = [(key.topic_id, key.partition) for key in keys]
        self._claims.update(dict.fromkeys(places, claim))
        self._taken_over({topic_id for topic_id, _ in places})

    def _release(self, keys: Iterable[SharePartition], claim: Claim) -> set[SharePartition]:
        """Those that no later request has taken over. With the lock held."""
        current = {key for key in keys if self._claims.get((key.topic_id, key.partition)) is claim}
        for key in current:
            del self._claims[key.topic_id, key.partition]
        if current:
            self._released()
        return current

    def _ask_all(
        self,
        keys: Iterable[SharePartition],
        claim: Claim,
        ask: Ask,
        done: Callable[[Outcomes], object],
    ) -> None:
        """`done` is called once, by a thread that may wait for the log. A share-partition that a
        later request has taken over is not asked for: that one decides. After ASKING_MS_MAX none
        is, for the client has gone by then."""

        def asked(key: SharePartition, came: Callable[[Outcome], None]) -> None:
            if self.lost:  # another coordinator asks by now
                came(Outcome(ErrorCode.NOT_COORDINATOR))
            elif self._claims.get((key.topic_id, key.partition)) is not claim:
                came(Outcome())
            else:
                ask(persister, key, came)

        try:
            persister = self._persister()
            questions = Gathering(
                keys, asked, partial(self._all_came, done), lambda _: _FAILED,
                self._around.failures, UNDER_WAY_MAX, is_late=self._late_after(ASKING_MS_MAX),
                late=lambda _: _TOO_LATE,
            )  # fmt: skip
        except Exception as error:  # for want of memory or descriptors
            self._around.failures.note("asking for the states of share-partitions", error)
            done(dict.fromkeys(keys, _FAILED))
            return
        with self.lock:
            self._requests.append(questions)
            is_first = len(self._requests) == 1
        if is_first:
            questions.begin()

    def _all_came(self, done: Callable[[Outcomes], object], outcomes: Outcomes) -> None:
        """Those of the first request. The next one begins whatever becomes of this one, and without
        this one's stack: many may have waited, and be too late by now."""
        with self.lock:
            self._requests.popleft()
            if self._requests:
                self._outbox.add(self._requests[0].begin)
        try:
            self._on_worker(self.group_id, partial(done, outcomes))
        except Exception as error:  # better late than never
            self._around.failures.note("the end of a request about offsets", error)
            done(outcomes)
        finally:
            self._outbox.run()

    # --- offsets are altered ----------------------------------------------------------------------

    def alter(self, asked: AlterAsked, answer: Callable[[Altered], object]) -> None:
        """The group begins to read these share-partitions elsewhere; a group that is not there is
        made. `answer` is called once, when that lasts."""
        claim, starts = Claim(), asked.starts
        epoch = 0

        def decide(draft: Draft) -> None:
            nonlocal epoch
            offset_decisions.check_empty(draft.state)
            if starts:
                offset_decisions.alteration_begins(draft, asked.topics)
                epoch = draft.state.epoch
                self._claim(starts, claim)

        def decided(found: HeartbeatAnswer) -> None:
            if found.code or not starts:
                with self.lock:
                    self._release(starts, claim)
                answer(Altered(found.code, found.message))
                return
            self._ask_all(
                starts,
                claim,
                lambda persister, key, done: persister.initialize(key, epoch, starts[key], done),
                partial(self._starts_came, claim, answer),
            )

        self._run(decide, decided, "an alteration of offsets")

    def _starts_came(
        self, claim: Claim, answer: Callable[[Altered], object], outcomes: Outcomes
    ) -> None:
        current: set[SharePartition] = set()
        answered = {key: _for_client(outcome) for key, outcome in outcomes.items()}

        def note() -> None:
            current.update(self._release(outcomes, claim))

        def decide(draft: Draft) -> None:
            good = [key for key in current if not outcomes[key].code]
            bad = [key for key in current if outcomes[key].code]
            offset_decisions.alteration_ends(draft, good, bad)

        self._come_back(
            note, decide, "the end of an alteration of offsets",
            lambda found: answer(Altered(found.code, found.message, answered)),
        )  # fmt: skip

    # --- offsets are deleted ----------------------------------------------------------------------

    def delete_offsets(self, topics: ByTopic, answer: Callable[[OffsetsDeleted], object]) -> None:
        """The group has read nothing of these topics; `topics` has all their partitions. `answer`
        is called once, when that lasts."""
        claim = Claim()
        keys: list[SharePartition] = []

        def decide(draft: Draft) -> None:
            offset_decisions.check_exists(draft.state, self.group_id)
            offset_decisions.check_empty(draft.state)
            places = offset_decisions.deletion_begins(draft, topics)
            keys.extend(
                SharePartition(self.group_id, topic_id, index)
                for topic_id, some in places.items()
                for index in sorted(some)
            )
            self._claim(keys, claim)

        def decided(found: HeartbeatAnswer) -> None:
            if found.code or not keys:
                with self.lock:
                    self._release(keys, claim)
                answer(OffsetsDeleted(found.code, found.message))
            else:
                self._ask_all(keys, claim, _delete, partial(self._states_went, claim, answer))

        self._run(decide, decided, "a deletion of offsets")

    def _states_went(
        self, claim: Claim, answer: Callable[[OffsetsDeleted], object], outcomes: Outcomes
    ) -> None:
        codes = _codes_of_topics(outcomes)
        gone: set[UUID] = set()

        def note() -> None:
            current = self._release(outcomes, claim)
            taken_over = {key.topic_id for key in outcomes if key not in current}
            gone.update(id_ for id_, code in codes.items() if not code and id_ not in taken_over)

        def decide(draft: Draft) -> None:
            offset_decisions.deletion_ends(draft, gone)

        self._come_back(
            note, decide, "the end of a deletion of offsets",
            lambda found: answer(OffsetsDeleted(found.code, found.message, codes)),
        )  # fmt: skip

    # --- the group is deleted ---------------------------------------------------------------------

    def _may_be_removed(self) -> ErrorCode:
        """Not while share-partitions get a state, or lose it, by a request."""
        code = super()._may_be_removed()
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if not code and self._claims else code


def _delete(persister: Persister, key: SharePartition, done: Callable[[Outcome], None]) -> None:
    persister.delete(key, done)


def _for_client(outcome: Outcome) -> Outcome:
    code, message, _ = outcome
    return Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE, message) if code in _AWAY else outcome


def _codes_of_topics(outcomes: Outcomes) -> dict[UUID, ErrorCode]:
    """Of deletions: the first error of each topic."""
    found: dict[UUID, ErrorCode] = {}
    for key, outcome in outcomes.items():
        code = _NONE if has_no_state(outcome) else _for_client(outcome).code
        found[key.topic_id] = found.get(key.topic_id) or code
    return found
