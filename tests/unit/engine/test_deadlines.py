"""Deadlines of parked requests: one entry of the time wheel for each tick, and never none."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.engine.waiting.deadlines import FetchDeadlines
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer


class Hot:
    def __init__(self) -> None:
        self.expired: list[int] = []

    def tick_deadline_ms(self, tick: int) -> int:
        return tick * 4

    def expire(self, tick: int) -> None:
        self.expired.append(tick)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.hot: Any = Hot()
        self.deadlines = FetchDeadlines(self.hot, Purgatory("Fetch", self.timer), self.clock)
        self.now_tick = self.clock.monotonic_ms() // 4


@pytest.fixture
def world() -> World:
    return World()


def test_a_tick_announced_again_and_again_waits_once(world: World) -> None:
    # Two ticks that share a bucket in C are each announced again whenever the other one was.
    near, far = world.now_tick + 100, world.now_tick + 100 + 2048
    for _ in range(50):
        world.deadlines.watch(near)
        world.deadlines.watch(far)
    assert len(world.timer) == 2
    world.clock.advance(100 * 4 + 1)
    world.timer.advance()
    assert world.hot.expired == [near]


def test_a_tick_that_has_come_is_watched_anew(world: World) -> None:
    tick = world.now_tick + 10
    world.deadlines.watch(tick)
    world.clock.advance(41)
    world.timer.advance()
    world.deadlines.watch(tick)  # for a late request
    world.clock.advance(2)
    world.timer.advance()
    assert world.hot.expired == [tick, tick]
