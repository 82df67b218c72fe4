"""The timer: one thread that runs each task when its delay is over, and sleeps in between.

`add` and `cancel` may be called from any thread and cost one short lock and O(1). The thread
`kbroker-timer` sleeps until the next bucket of the wheel is due; it does not tick. `add` wakes it
only when the new task is due before what it sleeps for. A task runs on that thread, at or up to one
tick after its deadline, never before, so `run` must be short and must not block: longer work is
handed on. A task that raises is logged and counted, and the timer goes on. Should the thread be
lost all the same (own_thread.py), the waiting tasks run at once, so that none waits for ever, and
`add` raises from then on.

Without `start` the timer is manual: `advance()` runs on the caller's thread what is due by the
clock. The thread does nothing else, so tests of tasks need no thread at all.

`lock` guards the wheel and the flags; it is a leaf: no task, callback or other lock is reached
while it is held. It is public because a purgatory guards its watchers with it too, so that an
operation is parked, and taken out, in one step. After `stop` tasks stay where they are, unrun.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import InvariantError
from kbroker.limits import DELAY_MS_MAX
from kbroker.own_thread import OwnThread
from kbroker.purgatory.time_wheel import TimeWheel, WheelEntry

logger: Final = logging.getLogger("kbroker.purgatory")

# `call_later(delay_ms, call)` of a timer, for callers that need no more of it.
CallLater = Callable[[int, Callable[[], object]], Callable[[], object]]

_NEVER: Final = 2**63
_AWAKE: Final = -1


class TimerTask(WheelEntry):
    """Something to be run once, `delay_ms` after it is added."""

    __slots__ = ("delay_ms",)

    def __init__(self, delay_ms: int) -> None:
        super().__init__()
        self.delay_ms = delay_ms

    def run(self) -> None:
        raise NotImplementedError


class _Call(TimerTask):
    """Its own `cancel` is what the caller keeps: ten thousand members wait, each with one."""

    __slots__ = ("_call", "_timer")

    def __init__(self, timer: Timer, delay_ms: int, call: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._timer = timer
        self._call = call

    def run(self) -> None:
        self._call()

    def cancel(self) -> bool:
        return self._timer.cancel(self)


class Timer:
    """The wheel, its lock and its thread."""

    def __init__(self, clock: Clock, name: str = "kbroker-timer") -> None:
        self.name = name
        self._clock = clock
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._wheel = TimeWheel(clock.monotonic_ms())
        self._sleeping_until = _AWAKE  # a tick; written under the lock
        self._stopping = False
        self.thread: Final = OwnThread(name, self._loop, self._given_up)
        self._wakeups = 0
        self._ran = 0
        self._failed = 0

    def start(self) -> None:
        """Start the thread; once."""
        self.thread.start()

    def stop(self) -> None:
        """End the thread after the task it is running, if any; may be called more than once."""
        with self.lock:
            self._stopping = True
            self._changed.notify_all()
        self.thread.await_end()

    def add(self, task: TimerTask) -> None:
        """Have `task.run()` called when its delay is over; a delay below one tick counts as one."""
        tick = self.tick_after(task.delay_ms)
        with self.lock:
            if self.thread.dead:
                raise InvariantError(f"{self.name} is dead: nothing can wait for a time")
            self.add_locked(task, tick)

    def call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        """Have a short call made on the timer's thread; returns how to cancel it."""
        task = _Call(self, max(1, delay_ms), call)
        self.add(task)
        return task.cancel

    def cancel(self, task: TimerTask) -> bool:
        """Take the task out; False when it is not waiting: never added, running, or run."""
        with self.lock:
            return self.cancel_locked(task)

    def tick_after(self, delay_ms: int) -> int:
        """The tick for a task added now; for `add_locked`."""
        if delay_ms > DELAY_MS_MAX:
            delay_ms = DELAY_MS_MAX
        # Rounded up: the part of this millisecond that has passed must not make the task early.
        return -(-self._clock.monotonic_ns() // NS_PER_MS) + delay_ms

    def add_locked(self, task: TimerTask, tick: int) -> None:
        if self._wheel.add(task, tick) < self._sleeping_until:
            self._sleeping_until = _AWAKE
            self._changed.notify()

    def cancel_locked(self, task: TimerTask) -> bool:
        return self._wheel.remove(task)

    def advance(self) -> int:
        """Run, on this thread, all that is due by the clock; how many tasks that were."""
        with self.lock:
            expired = self._wheel.advance(self._clock.monotonic_ms())
        for task in expired:
            self._run(task)
        return len(expired)

    def __len__(self) -> int:
        with self.lock:
            return len(self._wheel)

    def statistics(self) -> dict[str, int]:
        with self.lock:
            return {
                "waiting": len(self._wheel),
                "wheels": self._wheel.depth,
                "buckets": self._wheel.buckets_in_use,
                "wakeups": self._wakeups,
                "ran": self._ran,
                "failed": self._failed,
            }

    def _run(self, task: WheelEntry) -> None:
        # Only one thread runs tasks, so the counters need no lock.
        self._ran += 1
        try:
            if isinstance(task, TimerTask):
                task.run()
        except Exception as error:
            self._failed += 1
            self.thread.failures.note("a task", error)

    def _loop(self) -> None:
        while self._sleep_until_due():
            self.advance()

    def _given_up(self) -> None:
        """Run every waiting task, as if its time were over."""
        with self.lock:
            expired = self._wheel.advance(self._wheel.hand + DELAY_MS_MAX + 1)
        for task in expired:
            self._run(task)

    def _sleep_until_due(self) -> bool:
        """Block until something is due; False when the timer has been stopped."""
        with self.lock:
            while not self._stopping:
                due_tick = self._wheel.next_due()
                if due_tick is None:
                    self._sleeping_until, deadline_ns = _NEVER, None
                else:
                    deadline_ns = due_tick * NS_PER_MS
                    if deadline_ns <= self._clock.monotonic_ns():
                        return True
                    self._sleeping_until = due_tick
                self._clock.wait_until(self._changed, deadline_ns)
                self._sleeping_until = _AWAKE
                self._wakeups += 1
            return False
