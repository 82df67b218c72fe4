"""The clock that a test moves: both hands, and the sleepers."""

from __future__ import annotations

import threading

import pytest

from kbroker.clock import NS_PER_MS, SystemClock
from kbroker.testing.shifted_clock import ShiftedClock

HOUR_MS = 3_600_000


def test_both_hands_move_together() -> None:
    clock, machine = ShiftedClock(), SystemClock()
    before_ms, before_wall_ms = machine.monotonic_ms(), machine.wall_ms()
    clock.advance(HOUR_MS)
    assert clock.monotonic_ms() >= before_ms + HOUR_MS
    assert clock.wall_ms() >= before_wall_ms + HOUR_MS
    assert clock.shift_ms == HOUR_MS
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_a_sleeper_until_later_is_woken_by_the_hands() -> None:
    clock, condition = ShiftedClock(), threading.Condition()
    deadline_ns = clock.monotonic_ns() + 2 * HOUR_MS * NS_PER_MS
    looked: list[int] = []
    asleep = threading.Semaphore(0)

    def sleep() -> None:
        with condition:
            while clock.monotonic_ns() < deadline_ns:
                looked.append(1)
                asleep.release()
                clock.wait_until(condition, deadline_ns)

    sleeper = threading.Thread(target=sleep, daemon=True)
    sleeper.start()
    assert asleep.acquire(timeout=60)
    with condition:
        pass  # it sleeps: it has let go of the condition
    clock.advance(HOUR_MS)  # not far enough: it looks again, and sleeps on
    assert asleep.acquire(timeout=60)
    with condition:
        pass
    clock.advance(HOUR_MS)
    sleeper.join(60)
    assert not sleeper.is_alive() and len(looked) == 2


def test_a_sleeper_without_a_deadline_is_woken_by_notify_only() -> None:
    clock, condition = ShiftedClock(), threading.Condition()
    with condition:
        clock.wait_until(condition, clock.monotonic_ns())  # has come: no sleep
    done = threading.Event()
    ready = threading.Event()

    def sleep() -> None:
        with condition:
            ready.set()
            clock.wait_until(condition, None)
        done.set()

    sleeper = threading.Thread(target=sleep, daemon=True)
    sleeper.start()
    assert ready.wait(60)
    with condition:
        condition.notify_all()
    assert done.wait(60)
