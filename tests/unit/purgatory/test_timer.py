"""The timer: by hand, and its thread on a clock that is turned by hand."""

from __future__ import annotations

import logging
import threading

import pytest

from kbroker.clock import NS_PER_MS, ManualClock, SystemClock
from kbroker.limits import DELAY_MS_MAX
from kbroker.purgatory.timer import Timer, TimerTask


class Recorded(TimerTask):
    def __init__(self, delay_ms: int, runs: list[int], clock: ManualClock) -> None:
        super().__init__(delay_ms)
        self.runs = runs
        self.clock = clock
        self.ran = threading.Event()

    def run(self) -> None:
        self.runs.append(self.clock.monotonic_ms())
        self.ran.set()


class Failing(TimerTask):
    def run(self) -> None:
        raise OSError("no space left")


def test_by_hand_tasks_run_when_due_and_not_before() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    runs: list[int] = []
    for delay_ms in (500, 3, 0, 30_000):
        timer.add(Recorded(delay_ms, runs, clock))
    for step_ms in (1, 1, 1, 497, 29_499, 1):
        clock.advance(step_ms)
        timer.advance()
        timer.advance()
    assert runs == [1, 3, 500, 30_000]
    assert len(timer) == 0


def test_a_part_of_a_millisecond_never_makes_a_task_early() -> None:
    clock = ManualClock()
    clock.advance(10.9)
    timer = Timer(clock)
    timer.add(Recorded(5, [], clock))
    clock.advance(4.2)  # 15.1 ms: five have not passed since 10.9
    assert timer.advance() == 0
    clock.advance(0.9)
    assert timer.advance() == 1


def test_cancel_is_true_once_and_only_while_waiting() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    task = Recorded(5, [], clock)
    assert not timer.cancel(task)
    timer.add(task)
    assert timer.cancel(task)
    assert not timer.cancel(task)
    clock.advance(10)
    assert timer.advance() == 0
    timer.add(task)
    clock.advance(5)
    assert timer.advance() == 1
    assert not timer.cancel(task)


def test_an_endless_delay_is_cut_to_the_longest_there_is() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    runs: list[int] = []
    timer.add(Recorded(2**63, runs, clock))
    clock.advance(DELAY_MS_MAX - 1)
    assert timer.advance() == 0
    clock.advance(1)
    assert timer.advance() == 1


def test_a_failing_task_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    timer = Timer(clock)
    runs: list[int] = []
    timer.add(Failing(1))
    timer.add(Recorded(1, runs, clock))
    clock.advance(1)
    with caplog.at_level(logging.ERROR, logger="kbroker.purgatory"):
        assert timer.advance() == 2
    assert runs == [1]
    assert "no space left" in caplog.text
    assert timer.statistics()["failed"] == 1


def test_the_thread_runs_due_tasks_and_sleeps_in_between() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    runs: list[int] = []
    timer.start()
    try:
        assert clock.wait_for_sleepers(1)
        late = Recorded(30_000, runs, clock)
        timer.add(late)
        assert clock.wait_for_sleepers(1)
        for _ in range(300):
            clock.advance(99)
            assert clock.wait_for_sleepers(1)
        assert not late.ran.is_set()
        # 29.7 s in 300 steps: awake only to be given the task and to pass it down the wheels.
        assert timer.statistics()["wakeups"] <= 1 + timer.statistics()["wheels"]
        clock.advance(300)
        assert late.ran.wait(60)
        assert runs == [30_000]
    finally:
        timer.stop()


def test_an_earlier_task_wakes_the_thread_and_a_later_one_does_not() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    runs: list[int] = []
    timer.add(Recorded(15, runs, clock))
    timer.start()
    try:
        assert clock.wait_for_sleepers(1)
        timer.add(Recorded(18, runs, clock))
        early = Recorded(5, runs, clock)
        timer.add(early)
        clock.advance(5)
        assert early.ran.wait(60)
        assert clock.wait_for_sleepers(1)
        assert runs == [5]
        # Notified of the early task, or woken by the clock before that; not both, and no third.
        assert timer.statistics()["wakeups"] <= 2
    finally:
        timer.stop()


def test_stop_is_idempotent_and_leaves_tasks_unrun() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    runs: list[int] = []
    timer.add(Recorded(5, runs, clock))
    timer.start()
    with pytest.raises(RuntimeError, match="started"):
        timer.start()
    timer.stop()
    timer.stop()
    clock.advance(100)
    assert runs == []
    assert not any(thread.name == "kbroker-timer" for thread in threading.enumerate())


def test_a_task_may_stop_its_own_timer() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    stopped = threading.Event()

    class Stopping(TimerTask):
        def run(self) -> None:
            timer.stop()
            stopped.set()

    timer.add(Stopping(1))
    timer.start()
    assert clock.wait_for_sleepers(1)
    clock.advance(1)
    assert stopped.wait(60)
    timer.stop()


def test_on_the_machines_clock_a_task_runs_after_its_delay() -> None:
    clock = SystemClock()
    timer = Timer(clock)
    done = threading.Event()
    ran_ns: list[int] = []

    class Once(TimerTask):
        def run(self) -> None:
            ran_ns.append(clock.monotonic_ns())
            done.set()

    timer.start()
    try:
        added_ns = clock.monotonic_ns()
        timer.add(Once(7))
        assert done.wait(60)
        assert ran_ns[0] - added_ns >= 7 * NS_PER_MS
    finally:
        timer.stop()
