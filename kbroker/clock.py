"""Time, as an argument: the only file that asks the machine what time it is.

Level 0. Two clocks that must not be mixed up: the monotonic one measures durations and deadlines
and never jumps; the wall clock gives the timestamps that records and files carry. Code that needs
time takes a `Clock`, so that tests turn it by hand and no test ever sleeps.

Sleeping is part of the contract too. `wait_until` is `Condition.wait` with a deadline on this
clock: the caller holds the condition, as it must for `Condition.wait`, and checks its own predicate
again afterwards, because a wake-up says only that something may have changed.

`ManualClock` is for tests and for the embeddable broker. `advance` wakes exactly the sleepers whose
deadline has come; `wait_for_sleepers` lets a test see that a thread has gone to sleep again, which
is how "the timer did nothing more" is tested without sleeping. Lock order: the sleeper's condition,
then the clock's own lock; `advance` drops its lock before it touches a condition.
"""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

NS_PER_MS: Final = 1_000_000


class Clock(Protocol):
    """What the broker may know about time; every method may be called from any thread."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some fixed moment; never goes back."""
        ...

    def monotonic_ms(self) -> int:
        """`monotonic_ns` in whole milliseconds, rounded down."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as Kafka stamps records; may jump."""
        ...

    def wait_until(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        """Sleep on the held condition until notified or until `deadline_ns` on the monotonic clock.

        None means no deadline. Returns without a reason: the caller looks at its state again.
        """
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // NS_PER_MS

    def wall_ms(self) -> int:
        return time.time_ns() // NS_PER_MS

    def wait_until(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        if deadline_ns is None:
            condition.wait()
            return
        left_ns = deadline_ns - time.monotonic_ns()
        if left_ns > 0:
            condition.wait(min(left_ns / 1e9, threading.TIMEOUT_MAX))


class _Sleeper:
    """One thread inside `ManualClock.wait_until`."""

    __slots__ = ("condition", "deadline_ns")

    def __init__(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        self.condition = condition
        self.deadline_ns = deadline_ns


class ManualClock:
    """A clock that moves only when a test advances it; both hands move together."""

    def __init__(self, start_wall_ms: int = 1_700_000_000_000, start_monotonic_ms: int = 0) -> None:
        self._lock = threading.Lock()
        self._sleepers_changed = threading.Condition(self._lock)
        self._sleepers: set[_Sleeper] = set()
        self._monotonic_ns = start_monotonic_ms * NS_PER_MS
        self._wall_ns = start_wall_ms * NS_PER_MS

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def monotonic_ms(self) -> int:
        return self._monotonic_ns // NS_PER_MS

    def wall_ms(self) -> int:
        return self._wall_ns // NS_PER_MS

    def wait_until(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        sleeper = _Sleeper(condition, deadline_ns)
        with self._lock:
            if deadline_ns is not None and deadline_ns <= self._monotonic_ns:
                return
            self._sleepers.add(sleeper)
            self._sleepers_changed.notify_all()
        try:
            condition.wait()
        finally:
            with self._lock:
                self._sleepers.discard(sleeper)

    def advance(self, ms: float = 0, *, hours: float = 0) -> None:
        """Move both hands forward and wake the threads whose deadline has come."""
        step_ns = round((ms + hours * 3_600_000) * NS_PER_MS)
        if step_ns < 0:
            raise ValueError(f"time does not go back: {step_ns} ns")
        with self._lock:
            self._monotonic_ns += step_ns
            self._wall_ns += step_ns
            now_ns = self._monotonic_ns
            due = [
                s for s in self._sleepers if s.deadline_ns is not None and s.deadline_ns <= now_ns
            ]
            # Taken out at once: from here on they count as awake, whenever they really run.
            self._sleepers.difference_update(due)
        for sleeper in due:
            with sleeper.condition:
                sleeper.condition.notify_all()

    def set_wall_ms(self, wall_ms: int) -> None:
        """Let the wall clock jump, as an operator or NTP would; deadlines do not notice."""
        with self._lock:
            self._wall_ns = wall_ms * NS_PER_MS

    def wait_for_sleepers(self, count: int, timeout_s: float = 10.0) -> bool:
        """Block (in real time) until `count` threads sleep on this clock; False if they do not."""
        with self._lock:
            return self._sleepers_changed.wait_for(lambda: len(self._sleepers) >= count, timeout_s)


def let_go_of_gil() -> None:
    """Between two steps of long work in Python: who waits for the GIL has it now."""
    time.sleep(0)
