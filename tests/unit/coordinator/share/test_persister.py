"""The persister: where calls go, their order, what is tried again, and what is full."""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.coordinator.share import persister as module
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.persister import RETRY_MS, TIME_MS, Answers, StatePersister
from kbroker.coordinator.share.requests import Asked, Done, Initialize, Read, Write
from kbroker.coordinator.share.seams import Outcome, ReadState, Summary
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from tests.unit.coordinator.share.world import KEY, NONE, batch, key_of

OWN, NODE, THIRD = 1, 2, 3
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
MOVED = ErrorCode.NOT_COORDINATOR


class Coordinators:
    """What was asked waits in `asked` until the test answers it."""

    def __init__(self) -> None:
        self.node: int | None = NODE
        self.asked: list[tuple[int, Sequence[Asked], Callable[[Answers], object]]] = []
        self.own: list[tuple[Asked, Done]] = []
        self.raises: Exception | None = None
        self.answers_own = False
        self.has_loop = True

    def coordinator_of(self, key: SharePartition) -> int | None:
        if self.raises is not None:
            raise self.raises
        return self.node

    def is_local(self, node_id: int) -> bool:
        return node_id == OWN

    def ask_own(self, asked: Asked, done: Done) -> None:
        if self.answers_own:
            done(Outcome())
        else:
            self.own.append((asked, done))

    def ask(self, node_id: int, asked: Sequence[Asked], done: Callable[[Answers], object]) -> None:
        if not self.has_loop:
            raise RuntimeError("no loop")
        self.asked.append((node_id, asked, done))

    def answer(self, *answers: Any) -> Sequence[Asked]:
        """The oldest request; without answers: all of it is done."""
        _, asked, done = self.asked.pop(0)
        done(answers[0] if answers else [Outcome()] * len(asked))
        return asked


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.coordinators = Coordinators()
        self.timers: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self.failures = Failures("share state")
        self.persister = StatePersister(
            self.coordinators, self.clock, self._call_later, self.failures
        )
        self.outcomes: list[tuple[int, Outcome]] = []

    def _call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        at = self.clock.monotonic_ms() + delay_ms
        heapq.heappush(self.timers, (at, next(self._numbers), call))
        return lambda: None

    def pause(self) -> int:
        """To the next timer; how long that was."""
        at, _, call = heapq.heappop(self.timers)
        took = at - self.clock.monotonic_ms()
        self.clock.advance(took)
        call()
        return took

    def write(self, number: int, key: SharePartition = KEY, *batches: Any) -> None:
        self.persister.write(
            key, 0, 0, number, batches, lambda outcome: self.outcomes.append((number, outcome))
        )

    def done(self) -> list[int]:
        assert all(not outcome.code for _, outcome in self.outcomes)
        return [number for number, _ in self.outcomes]


@pytest.fixture
def world() -> World:
    return World()


def starts(asked: Sequence[Asked]) -> list[int]:
    return [each.start_offset for each in asked if isinstance(each, Write)]


def test_calls_that_wait_leave_together(world: World) -> None:
    for number in range(5):
        world.write(number, key_of(number))
    assert starts(world.coordinators.answer()) == [0]
    assert world.done() == [0]
    assert starts(world.coordinators.answer()) == [1, 2, 3, 4]
    assert world.done() == [0, 1, 2, 3, 4]
    assert not world.coordinators.asked
    assert world.persister.waiting == 0


def test_kinds_groups_and_brokers_have_requests_of_their_own(world: World) -> None:
    world.write(0)
    world.persister.initialize(key_of(1), 0, 0, lambda _: None)
    world.write(1, KEY._replace(group_id="other"))
    world.coordinators.node = THIRD
    world.write(2, key_of(2))
    nodes = [(node, type(asked[0]), asked[0].key.group_id) for node, asked, _ in
             world.coordinators.asked]  # fmt: skip
    assert nodes == [
        (NODE, Write, "work"), (NODE, Initialize, "work"), (NODE, Write, "other"),
        (THIRD, Write, "work"),
    ]  # fmt: skip


def test_this_broker_is_asked_without_a_request(world: World) -> None:
    world.coordinators.node = OWN
    for number in range(3):
        world.write(number, key_of(number))
    assert len(world.coordinators.own) == 3
    assert not world.coordinators.asked
    for _, done in world.coordinators.own:
        done(Outcome())
    assert world.done() == [0, 1, 2]


def test_calls_of_a_share_partition_keep_their_order(world: World) -> None:
    """Also where the first one has to be tried again."""
    for number in range(3):
        world.write(number)
    world.write(7, key_of(7))
    assert starts(world.coordinators.answer(AWAY)) == [0]
    assert starts(world.coordinators.answer()) == [7]
    assert world.pause() == RETRY_MS
    for number in range(3):
        assert starts(world.coordinators.answer()) == [number]
    assert world.done() == [7, 0, 1, 2]


@pytest.mark.parametrize("code", sorted(module._PASSING))
def test_an_error_that_passes_is_tried_again_for_a_time(world: World, code: ErrorCode) -> None:
    world.write(0)
    pauses = []
    while not world.outcomes:
        world.coordinators.answer([Outcome(code)])
        if not world.outcomes:
            pauses.append(world.pause())
    assert world.outcomes == [(0, Outcome(code))]
    assert pauses[:4] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, 8 * RETRY_MS]
    assert max(pauses) == 1_000
    assert TIME_MS - 1_000 <= world.clock.monotonic_ms() < TIME_MS


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,  # there are as many states as there may be
    ],
)  # fmt: skip
def test_an_answer_of_the_coordinator_is_final(world: World, code: ErrorCode) -> None:
    world.write(0)
    world.coordinators.answer([Outcome(code, "why")])
    assert world.outcomes == [(0, Outcome(code, "why"))]
    assert not world.timers


def test_another_coordinator_is_found_at_each_attempt(world: World) -> None:
    world.write(0)
    world.coordinators.node = OWN
    world.coordinators.answer([Outcome(MOVED)])
    world.pause()
    ((asked, done),) = world.coordinators.own
    assert starts([asked]) == [0]
    done(Outcome())
    assert world.done() == [0]


def test_without_a_coordinator_it_is_looked_for_again(world: World) -> None:
    world.coordinators.node = None
    answers: list[ReadState] = []
    world.persister.read(KEY, 3, answers.append)
    world.pause()
    assert not answers
    world.coordinators.node = NODE
    world.pause()
    found = ReadState(state_epoch=4, start_offset=9, batches=(batch(9, 9),))
    assert world.coordinators.answer([found]) == [Read(KEY, 3)]
    assert answers == [found]


def test_a_full_queue_is_an_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    for number in range(3):
        world.write(number)
    ((number, outcome),) = world.outcomes
    assert (number, outcome.code, outcome.is_full) == (2, AWAY, True)
    summaries: list[Summary] = []
    world.persister.summary(KEY, -1, summaries.append)
    assert summaries[0].is_full
    world.coordinators.answer()
    world.write(3)
    assert [number for number, _ in world.outcomes] == [2, 0]


def test_summaries_leave_room_for_requests_of_members(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 4)
    summaries: list[Summary] = []
    for number in range(3):
        world.persister.summary(key_of(number), -1, summaries.append)
    assert [each.is_full for each in summaries] == [True]
    for number in range(2):
        world.write(number)
    assert not world.outcomes
    world.write(2)
    assert [number for number, _ in world.outcomes] == [2]


def test_a_request_has_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_MAX", 3)
    monkeypatch.setattr(module, "BATCHES_MAX", 4)
    large = [batch(2 * n, 2 * n) for n in range(6)]
    world.write(99, key_of(99))
    for number in range(4):
        world.write(number, key_of(number))
    for number in range(4, 6):
        world.write(number, key_of(number), *large)
    asked = [starts(world.coordinators.answer()) for _ in range(5)]
    assert asked == [[99], [0, 1, 2], [3], [4], [5]]


def test_a_long_chain_needs_no_stack(world: World) -> None:
    """Each call is answered by the call of the one before."""
    count = 2 * sys.getrecursionlimit()
    world.coordinators.answers_own = True
    for number in range(count):
        world.write(number)  # to the other broker
    world.coordinators.node = OWN
    world.coordinators.answer()
    assert world.done() == list(range(count))


def test_an_exception_is_an_answer_for_its_call(world: World) -> None:
    world.coordinators.raises = ValueError("a fault")
    world.write(0)
    assert world.outcomes == [(0, Outcome(ErrorCode.UNKNOWN_SERVER_ERROR))]
    world.coordinators.raises = None
    world.coordinators.has_loop = False
    world.write(1)
    assert world.outcomes[1] == (1, Outcome(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert world.failures.count == 2
    assert world.persister.waiting == 0


def test_a_callback_that_raises_leaves_the_others(world: World) -> None:
    world.persister.delete(KEY, fails_once)
    world.write(1)
    world.coordinators.answer()
    world.coordinators.answer()
    assert world.done() == [1]
    assert world.failures.count == 1


def test_no_two_brokers_have_the_same_run() -> None:
    """They may start in the same millisecond."""
    runs = set()
    for _ in range(3):
        world = World()
        world.write(1)
        ((_, (asked,), _),) = world.coordinators.asked
        assert isinstance(asked, Write) and asked.run > 0
        runs.add(asked.run)
    assert len(runs) == 3


def fails_once(outcome: Outcome) -> None:
    raise ValueError("a caller's")


@pytest.mark.parametrize("seed", range(20))
def test_every_call_has_one_answer_and_each_chain_its_order(seed: int) -> None:
    dice, world = random.Random(seed), World()
    called: dict[int, list[int]] = {}
    for number in range(200):
        world.coordinators.node = dice.choice([None, OWN, NODE, THIRD])
        key = dice.randrange(4)
        called.setdefault(key, []).append(number)
        world.write(number, key_of(key))
        for _ in range(dice.randrange(3)):
            step(dice, world)
    while world.persister.waiting:
        world.coordinators.node = dice.choice([OWN, NODE, THIRD])
        step(dice, world)
    numbers = [number for number, _ in world.outcomes]
    assert sorted(numbers) == list(range(200))
    for of_key in called.values():
        assert [number for number in numbers if number in of_key] == of_key
    assert not world.failures.count


def step(dice: random.Random, world: World) -> None:
    code = dice.choice([NONE, NONE, AWAY, MOVED, ErrorCode.NETWORK_EXCEPTION])
    coordinators = world.coordinators
    if coordinators.asked and dice.random() < 0.5:
        at = dice.randrange(len(coordinators.asked))
        _, asked, done = coordinators.asked.pop(at)
        done(code if code is ErrorCode.NETWORK_EXCEPTION else [Outcome(code)] * len(asked))
    elif coordinators.own:
        _, answered = coordinators.own.pop(dice.randrange(len(coordinators.own)))
        answered(Outcome(code))
    elif world.timers:
        world.pause()
