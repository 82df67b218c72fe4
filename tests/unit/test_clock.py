"""clock.py: the manual clock's hands, and that sleepers wake at their deadline and not before."""

from __future__ import annotations

import threading

import pytest

from kbroker.clock import NS_PER_MS, Clock, ManualClock, SystemClock


def test_system_clock_speaks_milliseconds_of_both_clocks() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic_ns()
    assert before // NS_PER_MS <= clock.monotonic_ms() <= clock.monotonic_ns() // NS_PER_MS
    assert clock.wall_ms() > 1_600_000_000_000


def test_system_clock_does_not_sleep_past_a_deadline_that_has_been() -> None:
    condition = threading.Condition()
    with condition:
        SystemClock().wait_until(condition, SystemClock().monotonic_ns() - 1)


def test_manual_clock_moves_only_by_hand_and_both_hands_together() -> None:
    clock = ManualClock(start_wall_ms=5_000, start_monotonic_ms=7)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (5_000, 7)
    clock.advance(2.5)
    clock.advance(hours=1)
    assert clock.monotonic_ns() == 7 * NS_PER_MS + 2_500_000 + 3_600_000 * NS_PER_MS
    assert clock.wall_ms() == 5_000 + 2 + 3_600_000
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_the_wall_may_jump_and_deadlines_do_not_notice() -> None:
    clock = ManualClock()
    clock.set_wall_ms(1_000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_000, 0)


def sleeping_thread(clock: ManualClock, deadline_ms: int | None) -> tuple[
    threading.Thread, threading.Condition
]:  # fmt: skip
    condition = threading.Condition()

    def sleep() -> None:
        with condition:
            clock.wait_until(condition, None if deadline_ms is None else deadline_ms * NS_PER_MS)

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    return thread, condition


def test_advance_wakes_the_due_threads_and_leaves_the_others_asleep() -> None:
    clock = ManualClock()
    early, _ = sleeping_thread(clock, 10)
    late, _ = sleeping_thread(clock, 20)
    forever, condition = sleeping_thread(clock, None)
    assert clock.wait_for_sleepers(3)
    clock.advance(10)
    early.join(10)
    assert not early.is_alive()
    assert late.is_alive()
    clock.advance(10)
    late.join(10)
    assert not late.is_alive()
    assert forever.is_alive()
    with condition:
        condition.notify_all()
    forever.join(10)
    assert not forever.is_alive()
    assert not clock.wait_for_sleepers(1, timeout_s=0)


def test_a_deadline_that_has_come_does_not_sleep() -> None:
    clock = ManualClock(start_monotonic_ms=5)
    condition = threading.Condition()
    with condition:
        clock.wait_until(condition, 5 * NS_PER_MS)
