"""Threads of Kafka Streams 4.3 as members of a streams group, on the clock of the test.

A thread sends heartbeats while it takes and gives up tasks, which has its time. It says what it
owns when that has changed, and after a request that failed. Tasks that it is given meanwhile are
taken afterwards. If they are those that it said it had, it may be done with them before its next
heartbeat: then it says nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from kbroker.coordinator.streams_group.images import Endpoint, TaskSet, TopologyImage
from kbroker.coordinator.streams_group.messages import HeartbeatAsked, StreamsAnswer
from kbroker.coordinator.streams_group.topology import StatusCode
from kbroker.errors import ErrorCode
from tests.unit.coordinator.streams_group.world import (
    EMPTY,
    GROUP,
    HALF,
    STORE,
    Answer,
    World,
    part,
)

TOPOLOGY = TopologyImage(
    0, (part("0", "t", sinks=("half",)), part("1", repartitions=(HALF,), changelogs=(STORE,)))
)
MAX_POLL_MS = 300_000
BACKOFF_MS = 100
ANSWER_MS = 60
NOT_READY = {
    StatusCode.MISSING_SOURCE_TOPICS,
    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
    StatusCode.MISSING_INTERNAL_TOPICS,
    StatusCode.ASSIGNMENT_DELAYED,
}
LOST = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class State(Enum):
    JOINING = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    STABLE = auto()
    FENCED = auto()


class Given(NamedTuple):
    """Tasks, and whether the group is ready; `number`: of those that the member was given."""

    tasks: TaskSet
    is_ready: bool
    number: int


NOTHING = Given(EMPTY, False, -1)


@dataclass
class Asking:
    answer: Answer
    arrives_ms: int
    is_lost: bool


class Thread:
    """One member. `busy_ms`: how long it takes or gives up tasks, at most."""

    def __init__(
        self, world: World, dice: random.Random, member_id: str, process_id: str, busy_ms: int
    ) -> None:
        self._world, self._dice = world, dice
        self.member_id, self.process_id, self._busy_ms = member_id, process_id, busy_ms
        self.loses = 0.0  # the part of its requests that fail
        self.missing: dict[str, int] = {}
        self.state = State.JOINING
        self._epoch = self._joins = 0
        self._current = self._target = self.has = NOTHING
        self._said: Given | None = None
        self._asking: Asking | None = None
        self._next_ms = self._interval_ms = 0
        self._work: tuple[int, Callable[[], None]] | None = None

    def _now_ms(self) -> int:
        return self._world.clock.monotonic_ms()

    def tick(self, *, is_up: bool) -> None:
        now_ms = self._now_ms()
        if self._work is not None and now_ms >= self._work[0]:
            (_, work), self._work = self._work, None
            work()
        if self._asking is not None and now_ms >= self._asking.arrives_ms:
            asking = self._asking
            if asking.is_lost:
                self.disconnect()
            elif not asking.answer.waits:
                self._asking = None
                self._take(asking.answer.got)
        if self.state is State.RECONCILING and self._work is None:
            self._reconcile()
        if is_up and self._asking is None and self.state is not State.FENCED:
            at_once = self.state in (State.JOINING, State.ACKNOWLEDGING)
            if now_ms >= self._next_ms or (at_once and not self._is_backing_off):
                self._send()

    _is_backing_off = False

    def disconnect(self) -> None:
        if self._asking is not None:
            self._asking = None
            self._fails(BACKOFF_MS)

    def _fails(self, backoff_ms: int) -> None:
        self._said = None  # it says all again
        self._is_backing_off, self._next_ms = True, self._now_ms() + backoff_ms

    def _send(self) -> None:
        asked = HeartbeatAsked(
            GROUP, self.member_id, self._epoch, client_id="client", client_host="/host"
        )
        if self.state is State.JOINING:
            asked = asked._replace(
                rebalance_timeout_ms=MAX_POLL_MS, topology=TOPOLOGY, owned=EMPTY, tags=(),
                process_id=self.process_id, endpoint=Endpoint(self.process_id, 1),
            )  # fmt: skip
        elif self._said is None or self.has[:2] != self._said[:2]:
            asked = asked._replace(owned=self.has.tasks)
            self._said = self.has
        if self.state is State.ACKNOWLEDGING:
            is_done = self._current == self._target
            self.state = State.STABLE if is_done else State.RECONCILING
        self._is_backing_off, self._next_ms = False, self._now_ms() + self._interval_ms
        arrives_ms = self._now_ms() + self._dice.randint(1, ANSWER_MS)
        is_lost = self._dice.random() < self.loses
        self._asking = Asking(self._world.begin(asked), arrives_ms, is_lost)

    def _take(self, answer: StreamsAnswer) -> None:
        if answer.code in LOST:
            self._fails(0)
            self.state = State.FENCED
            self._after_a_while(self._lost)
            return
        if answer.code:
            assert answer.code in (
                ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ), f"{self.member_id} fails: {answer.code.name} {answer.message}"  # fmt: skip
            self._fails(BACKOFF_MS)
            return
        assert answer.done is not None
        self._interval_ms, self._epoch = answer.interval_ms, answer.epoch
        self.missing = {each.name: each.partitions for each in answer.done.missing}
        is_ready = NOT_READY.isdisjoint(each.code for each in answer.done.statuses)
        tasks = answer.done.tasks
        if tasks is None and is_ready == self._target.is_ready:
            return
        before = self._target
        after = (before.tasks if tasks is None else tasks, is_ready)
        if before is NOTHING or after != before[:2]:
            self._target = Given(*after, before.number + 1)
        if self._target != self._current:
            self.state = State.RECONCILING
        elif self.state in (State.RECONCILING, State.JOINING):
            self.state = State.STABLE

    def _lost(self) -> None:
        self.has = self._current = self._target = NOTHING
        self.state, self._epoch, self._joins = State.JOINING, 0, self._joins + 1

    def _after_a_while(self, work: Callable[[], None]) -> None:
        self._work = (self._now_ms() + self._dice.randint(0, self._busy_ms), work)

    def _reconcile(self) -> None:
        goal, joins = self._target, self._joins
        if goal == self._current:
            return

        def is_over() -> bool:
            return self.state is not State.RECONCILING or self._joins != joins

        def revoke() -> None:
            if not is_over():
                self._after_a_while(assign)

        def assign() -> None:
            self.has = goal  # its thread does it in any case
            if not is_over():
                self._current, self.state = goal, State.ACKNOWLEDGING

        gives_up = any(
            some - goal.tasks.active.get(id_, frozenset())
            for id_, some in self._current.tasks.active.items()
        )
        self._after_a_while(revoke if gives_up else assign)
