"""Brokers with threads, whose turns a seed decides: in a debug build (`make test-debug`)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from tests.simulation.history import run
from tests.simulation.lanes import played_lanes
from tests.simulation.loop import CONTROLLER, Process
from tests.simulation.lost_syncs import LostSyncs
from tests.simulation.planted_threads import PLANTED_IN_THREADS
from tests.simulation.scheduled_locks import ScheduledLock
from tests.simulation.scheduler import Scheduler, scheduled

SEEDS = 20


class Watched:
    """The part of `Safety` that a scheduler uses."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def fail(self, rule: str, detail: str, _: object = None) -> None:
        self.seen.append(f"{rule}: {detail}")

    def after_step(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *how: None


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def scheduler(watched: Watched) -> Iterator[Scheduler]:
    with scheduled(random.Random(1)) as made:
        made.begin(watched)  # type: ignore[arg-type]
        yield made


def lock_of(scheduler: Scheduler, name: str) -> ScheduledLock:
    return ScheduledLock(scheduler, name)


def test_a_thread_that_waits_for_a_lock_runs_when_it_is_free(scheduler: Scheduler) -> None:
    process, lock, order = Process(scheduler.loop), lock_of(scheduler, "one"), []

    def holds() -> None:
        with lock:
            scheduler.before_operation("write", "/disk/0.log")
            order.append(("holds", scheduler.loop.now_ms))

    def wants() -> None:
        with lock:
            order.append(("wants", scheduler.loop.now_ms))

    scheduler.hang("/disk/", 500)
    scheduler.run(process, "first", holds)
    scheduler.loop.run_until(1_000)
    assert order == [("holds", 500)]
    order.clear()
    scheduler.hang("/disk/", 500)
    scheduler.run(process, "first", holds)
    scheduler.loop.run_until(1_200)
    scheduler.run(process, "second", wants)
    scheduler.loop.run_until(1_400)
    assert order == []
    scheduler.loop.run_until(2_000)
    assert [name for name, _ in order] == ["holds", "wants"]


def test_a_lock_is_given_up_when_the_time_is_over(scheduler: Scheduler) -> None:
    process, lock, got = Process(scheduler.loop), lock_of(scheduler, "one"), []
    lock.acquire()

    def tries() -> None:
        got.append((lock.acquire(timeout=0.3), scheduler.loop.now_ms))

    scheduler.run(process, "first", tries)
    scheduler.loop.run_until(1_000)
    assert [each for each, _ in got] == [False] and 300 <= got[0][1] < 700


def test_a_deadlock_is_reported_with_the_names_of_its_locks(
    scheduler: Scheduler, watched: Watched
) -> None:
    process = Process(scheduler.loop)
    one, other = lock_of(scheduler, "one"), lock_of(scheduler, "other")

    def take(first: ScheduledLock, second: ScheduledLock) -> None:
        with first:
            scheduler.before_operation("write", "/disk/0.log")
            with second:
                pass

    scheduler.hang("/disk/", 100)
    scheduler.run(process, "first", lambda: take(one, other))
    scheduler.run(process, "second", lambda: take(other, one))
    scheduler.loop.run_until(1_000)
    assert len(watched.seen) == 1
    assert all(name in watched.seen[0] for name in ("no deadlock", "lock of one", "lock of other"))


def test_work_of_a_lane_is_known_as_that(scheduler: Scheduler) -> None:
    """The controller's thread does it here, and may wait for a disk then (history 414)."""
    process, seen = Process(scheduler.loop), []
    log = mock.Mock()
    lanes = played_lanes(scheduler, mock.Mock(usable=[], held=lambda names: [mock.Mock(log=log)]))

    def look() -> None:
        assert scheduler.running is not None
        seen.append(scheduler.running.in_lane)

    def follow() -> None:
        look()
        lanes.after(log, look)
        look()

    scheduler.run(process, CONTROLLER, follow)
    scheduler.loop.run_until(1_000)
    assert seen == [0, 1, 0]


def test_a_sync_fails_before_a_start_is_over() -> None:
    """Its broker follows by then, and finds its log offline (history 534)."""
    starting = mock.Mock(disk_failed=False, **{"replicas.replicas.return_value": {}})
    broker = mock.Mock(directory="/disk/1", running=None, starting=starting)
    lost = LostSyncs(mock.Mock(brokers={1: broker}))
    lost.arm("/disk/1/t-0/")
    lost.before("/disk/1/t-0/0.log", None)
    assert starting.disk_failed


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_everything_holds(first: int) -> None:
    seeds = range(first, first + 10)
    assert [run(seed, threads=True).violation for seed in seeds] == [None] * len(seeds)


def test_a_seed_is_the_same_history_twice_and_in_every_process() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--threads", "--seed"]
    for seed in (1, 2):
        outputs = {
            subprocess.run(
                [*command, str(seed)],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                capture_output=True,
                check=True,
            ).stdout
            for hash_seed in ("1", "2")
        }
        assert len(outputs) == 1 and b"all held" in outputs.pop()
    assert all(run(seed, threads=True) == run(seed, threads=True) for seed in (3, 4, 5))


@pytest.mark.parametrize("name", PLANTED_IN_THREADS)
def test_a_planted_fault_is_found(name: str) -> None:
    plant = PLANTED_IN_THREADS[name]
    with plant.switched_on():
        seeds = range(plant.first, plant.first + plant.seeds)
        assert any(run(seed, plant.schedule, threads=True).violation for seed in seeds)
