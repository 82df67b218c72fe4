"""The scheduler: periods by a clock turned by hand, steps in turn, failures that stop nothing."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from kbroker.clock import ManualClock
from kbroker.limits import TASK_RETRY_MS
from kbroker.scheduler import Scheduler


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> Scheduler:
    return Scheduler(clock)


def test_a_task_runs_after_its_delay_and_then_every_period(
    scheduler: Scheduler, clock: ManualClock
) -> None:
    runs: list[int] = []
    scheduler.schedule("tick", lambda: runs.append(clock.monotonic_ms()), period_ms=100, delay_ms=7)
    for _ in range(310):
        clock.advance(1)
        scheduler.run_due()
    assert runs == [7, 107, 207, 307]


def test_the_first_run_is_after_one_period_by_default(
    scheduler: Scheduler, clock: ManualClock
) -> None:
    runs: list[int] = []
    scheduler.schedule("tick", lambda: runs.append(1), period_ms=100)
    clock.advance(99)
    assert scheduler.run_due() == 0
    clock.advance(1)
    assert scheduler.run_due() == 1


def test_missed_runs_are_not_made_up_for(scheduler: Scheduler, clock: ManualClock) -> None:
    runs: list[int] = []
    scheduler.schedule("tick", lambda: runs.append(1), period_ms=10)
    clock.advance(1_000)
    assert scheduler.run_due() == 1
    assert scheduler.run_due() == 0


def test_once_is_once_and_its_name_is_free_again(scheduler: Scheduler, clock: ManualClock) -> None:
    runs: list[int] = []
    scheduler.schedule("once", lambda: runs.append(1), period_ms=None, delay_ms=5)
    clock.advance(50)
    scheduler.run_due()
    clock.advance(50)
    scheduler.run_due()
    assert runs == [1]
    assert scheduler.statistics() == {}
    scheduler.schedule("once", lambda: runs.append(2), period_ms=None)
    scheduler.run_due()
    assert runs == [1, 2]


def test_work_that_is_to_run_once_runs_again_until_it_succeeds(
    scheduler: Scheduler, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    def begin() -> None:
        tries.append(clock.monotonic_ms())
        if len(tries) < 3:
            raise OSError(errno.EMFILE, "Too many open files")

    scheduler.schedule("begin", begin, period_ms=None)
    assert scheduler.failing() == {}
    scheduler.run_due()
    assert scheduler.failing() == {"begin": "OSError: [Errno 24] Too many open files"}
    for _ in range(3):
        clock.advance(TASK_RETRY_MS)
        scheduler.run_due()
    assert tries == [0, TASK_RETRY_MS, 2 * TASK_RETRY_MS]
    assert scheduler.failing() == scheduler.statistics() == {}
    assert scheduler.thread.failures.count == 2
    assert len([each for each in caplog.records if "begin" in each.getMessage()]) == 1


def test_work_that_comes_every_period_is_not_failing(
    scheduler: Scheduler, clock: ManualClock
) -> None:
    work = Mock(side_effect=OSError)
    scheduler.schedule("tick", work, period_ms=10, delay_ms=0)
    scheduler.run_due()
    assert scheduler.failing() == {}


def test_once_leaves_scheduled_work_alone(scheduler: Scheduler, clock: ManualClock) -> None:
    runs: list[int] = []
    scheduler.once("again", lambda: runs.append(1), 5)
    scheduler.once("again", lambda: runs.append(2), 1)
    clock.advance(5)
    scheduler.run_due()
    assert runs == [1]


def test_once_is_not_lost_while_the_task_runs(scheduler: Scheduler, clock: ManualClock) -> None:
    """What it began on another thread may fail before its run is over, and ask for another."""
    runs: list[int] = []

    def work() -> None:
        runs.append(clock.monotonic_ms())
        if len(runs) < 3:
            scheduler.once("settings", work, 1_000)
            scheduler.once("settings", work, 1_000)

    scheduler.once("settings", work, 1_000)
    for _ in range(4):
        clock.advance(1_000)
        scheduler.run_due()
    assert runs == [1_000, 2_000, 3_000]
    assert scheduler.statistics() == {}


def test_steps_of_several_tasks_take_turns(scheduler: Scheduler, clock: ManualClock) -> None:
    order: list[str] = []

    def sweep(name: str) -> Iterator[None]:
        for number in range(3):
            order.append(f"{name}{number}")
            yield

    scheduler.schedule("a", lambda: sweep("a"), period_ms=10)
    scheduler.schedule("b", lambda: sweep("b"), period_ms=10)
    scheduler.schedule("c", lambda: order.append("c"), period_ms=10)
    clock.advance(10)
    scheduler.run_due()
    assert order == ["a0", "b0", "c", "a1", "b1", "a2", "b2"]
    assert {name: s["runs"] for name, s in scheduler.statistics().items()} == dict(a=1, b=1, c=1)


def test_a_period_counts_from_the_end_of_the_run(scheduler: Scheduler, clock: ManualClock) -> None:
    starts: list[int] = []

    def slow() -> Iterator[None]:
        starts.append(clock.monotonic_ms())
        for _ in range(3):
            clock.advance(50)
            yield

    scheduler.schedule("slow", slow, period_ms=100)
    for _ in range(100):
        clock.advance(10)
        scheduler.run_due()
    assert starts[:3] == [100, 350, 600]
    statistics = scheduler.statistics()["slow"]
    assert statistics["longest_step_us"] == 50_000
    assert statistics["slow_steps"] == 3 * statistics["runs"]


def test_a_failure_is_logged_counted_and_tried_again(
    scheduler: Scheduler, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = iter(["fail", "fail later", "well"])
    others: list[int] = []

    def work() -> Iterator[None] | None:
        outcome = next(outcomes)
        if outcome == "fail":
            raise OSError("first")
        return steps(outcome)

    def steps(outcome: str) -> Iterator[None]:
        yield
        if outcome == "fail later":
            raise OSError("second")

    scheduler.schedule("work", work, period_ms=10)
    scheduler.schedule("other", lambda: others.append(1), period_ms=10)
    with caplog.at_level(logging.ERROR, logger="kbroker.failures"):
        for _ in range(3):
            clock.advance(10)
            scheduler.run_due()
    assert "first" in caplog.text
    assert scheduler.thread.failures.count == 2  # the same cause is logged once a second
    assert others == [1, 1, 1]
    assert scheduler.statistics()["work"]["failures"] == 2
    assert scheduler.statistics()["work"]["runs"] == 3


def test_cancel_takes_out_a_waiting_task(scheduler: Scheduler, clock: ManualClock) -> None:
    runs: list[int] = []
    task = scheduler.schedule("task", lambda: runs.append(1), period_ms=10)
    scheduler.cancel(task)
    scheduler.cancel(task)
    clock.advance(10)
    assert scheduler.run_due() == 0
    assert runs == []
    assert not scheduler.trigger("task")


def test_cancel_ends_a_running_task_between_steps_and_runs_its_finally(
    scheduler: Scheduler, clock: ManualClock
) -> None:
    seen: list[str] = []

    def sweep() -> Iterator[None]:
        try:
            seen.append("first")
            yield
            seen.append("second")
        finally:
            seen.append("closed")

    task = scheduler.schedule("sweep", sweep, period_ms=10)
    scheduler.schedule("cancel", lambda: scheduler.cancel(task), period_ms=10)
    clock.advance(10)
    scheduler.run_due()
    assert seen == ["first", "closed"]
    assert list(scheduler.statistics()) == ["cancel"]


def test_trigger_runs_now_and_the_period_starts_anew(
    scheduler: Scheduler, clock: ManualClock
) -> None:
    runs: list[int] = []
    scheduler.schedule("task", lambda: runs.append(clock.monotonic_ms()), period_ms=100)
    clock.advance(60)
    assert scheduler.trigger("task")
    assert scheduler.trigger("task")
    scheduler.run_due()
    clock.advance(99)
    scheduler.run_due()
    clock.advance(1)
    scheduler.run_due()
    assert runs == [60, 160]


def test_a_trigger_during_a_run_makes_one_more(scheduler: Scheduler, clock: ManualClock) -> None:
    runs: list[int] = []

    def work() -> None:
        runs.append(1)
        if len(runs) == 1:
            scheduler.trigger("work")
            scheduler.trigger("work")

    scheduler.schedule("work", work, period_ms=100)
    clock.advance(100)
    scheduler.run_due()
    assert len(runs) == 2


def test_names_and_periods_are_checked(scheduler: Scheduler) -> None:
    scheduler.schedule("task", lambda: None, period_ms=10)
    with pytest.raises(ValueError, match="'task' is scheduled already"):
        scheduler.schedule("task", lambda: None, period_ms=10)
    with pytest.raises(ValueError, match="a period of 0 ms"):
        scheduler.schedule("other", lambda: None, period_ms=0)


def test_the_thread_works_sleeps_and_stops(scheduler: Scheduler, clock: ManualClock) -> None:
    ran = threading.Semaphore(0)
    scheduler.start()
    with pytest.raises(RuntimeError, match="started"):
        scheduler.start()
    try:
        assert clock.wait_for_sleepers(1)
        scheduler.schedule("late", lambda: ran.release(), period_ms=1_000)
        scheduler.schedule("task", lambda: ran.release(), period_ms=10)
        for _ in range(3):
            # It sleeps again only after the run before has put the task back into the queue.
            assert clock.wait_for_sleepers(1)
            clock.advance(10)
            assert ran.acquire(timeout=60)
    finally:
        scheduler.stop()
        scheduler.stop()
    assert not any(thread.name == "kbroker-scheduler" for thread in threading.enumerate())


def test_stop_gives_up_a_task_between_steps(clock: ManualClock) -> None:
    scheduler = Scheduler(clock)
    begun, closed = threading.Event(), threading.Event()

    def endless() -> Iterator[None]:
        begun.set()
        try:
            while True:
                yield
        finally:
            closed.set()

    scheduler.schedule("endless", endless, period_ms=None)
    scheduler.start()
    assert begun.wait(60)
    scheduler.stop()
    assert closed.is_set()
    assert not any(thread.name == "kbroker-scheduler" for thread in threading.enumerate())
