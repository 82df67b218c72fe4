"""Background work by name and period, in small steps on one thread.

Checkpoints, flushing, removals, the expiry of offsets and the rates of metrics run here. A task is
a function. It may do its work in one go and return None, or be a generator function and `yield`
between its steps; between two steps the GIL is let go and every other task that is due has its
turn, so a long sweep delays no task. A step should stay below `PYTHON_STEP_MS_MAX`; `statistics()`
says which task does not.

A period is counted from the end of one run to the start of the next, so a slow task never runs
against itself and missed runs are not made up for. A task that raises is logged and counted, and
runs again after its period; one without a period, which is to run once, after TASK_RETRY_MS, until
it works, and is `failing` meanwhile.

Any thread may schedule, cancel and trigger. The thread `kbroker-scheduler` sleeps until the next
task is due and does not tick. One lock guards the queue; no task runs under it. Without `start`
the scheduler is manual: `run_due()` runs on the caller's thread all that is due by the clock.
`stop` waits for the step that is running, not for the rest of its task.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kbroker.clock import NS_PER_MS, Clock, let_go_of_gil
from kbroker.limits import PYTHON_STEP_MS_MAX, TASK_RETRY_MS
from kbroker.own_thread import OwnThread

logger: Final = logging.getLogger("kbroker.scheduler")

Work = Callable[[], Iterator[None] | None]


class ScheduledTask:
    """One task and what has become of it; made by `Scheduler.schedule` alone."""

    def __init__(self, name: str, work: Work, period_ms: int | None) -> None:
        self.name = name
        self.period_ms = period_ms
        self.cancelled = False
        self.runs = 0
        self.failures = 0
        self.slow_steps = 0
        self.longest_step_ns = 0
        self.turn = 0  # counts the entries in the queue; an entry with an older turn is void
        self.error = ""  # what the last run raised
        self.running = False
        self.again_ms: int | None = None  # asked for while running: to run again after this
        self._work = work
        self._steps: Iterator[None] | None = None

    def step(self) -> bool:
        """Do one step; True when there is another one."""
        if self._steps is None:
            self._steps = self._work()
            if self._steps is None:
                return False
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
            return False
        except BaseException:
            self._steps = None
            raise
        return True

    def abandon(self) -> None:
        """Let a generator that will not be resumed run its `finally`."""
        steps, self._steps = self._steps, None
        close = getattr(steps, "close", None)
        if close is not None:
            close()


class Scheduler:
    """The queue of tasks by due time, and the thread that works it off."""

    def __init__(self, clock: Clock, name: str = "kbroker-scheduler") -> None:
        self.name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queue: list[tuple[int, int, int, ScheduledTask]] = []  # due ns, number, turn, task
        self._number = 0
        self._tasks: dict[str, ScheduledTask] = {}
        self._running: deque[ScheduledTask] = deque()  # of the thread that works; not locked
        self._stopping = False
        self.thread: Final = OwnThread(name, self._loop)

    def start(self) -> None:
        """Start the thread; once."""
        self.thread.start()

    def stop(self) -> None:
        """End the thread after the step it is in; may be called more than once."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()
        self.thread.await_end()

    def schedule(
        self,
        name: str,
        work: Work,
        period_ms: int | None,
        delay_ms: int | None = None,
        error: str = "",
    ) -> ScheduledTask:
        """Run `work` after `delay_ms` (default: one period), then every period; None means once,
        and again after a while if it raised. `error`: what it raised when it was tried elsewhere.

        Names are unique among the tasks that still have a run before them.
        """
        if period_ms is not None and period_ms <= 0:
            raise ValueError(f"{name}: a period of {period_ms} ms")
        if delay_ms is None:
            delay_ms = period_ms or 0
        task = ScheduledTask(name, work, period_ms)
        task.error = error
        with self._lock:
            if name in self._tasks:
                raise ValueError(f"a task named {name!r} is scheduled already")
            self._tasks[name] = task
            self._enqueue_locked(task, delay_ms)
        return task

    def once(self, name: str, work: Work, delay_ms: int) -> None:
        """Run `work` once after `delay_ms`; if a task of this name is to run, that is enough. If it
        is running, it runs again: what it began may be what asks for it."""
        with self._lock:
            task = self._tasks.get(name)
            if task is None:
                task = self._tasks[name] = ScheduledTask(name, work, None)
                self._enqueue_locked(task, delay_ms)
            elif task.running and task.again_ms is None:
                task.again_ms = delay_ms

    def cancel(self, task: ScheduledTask) -> None:
        """No run of the task starts after this, and one under way takes no further step."""
        with self._lock:
            task.cancelled = True
            task.turn += 1
            self._forget_locked(task)

    def trigger(self, name: str) -> bool:
        """Have the named task run now; its period starts anew. False if there is none."""
        with self._lock:
            task = self._tasks.get(name)
            if task is None:
                return False
            if task.running:
                task.again_ms = 0
            else:
                self._enqueue_locked(task, 0)
            return True

    def failing(self) -> dict[str, str]:
        """Tasks that are to run once and have only failed so far: name and last error."""
        with self._lock:
            return {
                name: task.error
                for name, task in sorted(self._tasks.items())
                if task.period_ms is None and task.error
            }

    def run_due(self) -> int:
        """Do, on this thread, all that is due by the clock; how many steps that were."""
        steps = 0
        while not self._stopping:
            self._take_due()
            if not self._running:
                break
            # One step of each before the second of any.
            for _ in range(len(self._running)):
                task = self._running.popleft()
                steps += 1
                more = self._step(task)
                let_go_of_gil()
                if more:
                    self._running.append(task)
                else:
                    self._finish(task)
        return steps

    def statistics(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return {
                name: {
                    "period_ms": task.period_ms or 0,
                    "runs": task.runs,
                    "failures": task.failures,
                    "slow_steps": task.slow_steps,
                    "longest_step_us": task.longest_step_ns // 1000,
                }
                for name, task in sorted(self._tasks.items())
            }

    def _enqueue_locked(self, task: ScheduledTask, delay_ms: int) -> None:
        task.turn += 1
        self._number += 1
        due_ns = self._clock.monotonic_ns() + delay_ms * NS_PER_MS
        heapq.heappush(self._queue, (due_ns, self._number, task.turn, task))
        self._changed.notify()

    def _forget_locked(self, task: ScheduledTask) -> None:
        if self._tasks.get(task.name) is task:
            del self._tasks[task.name]

    def _drop_void_locked(self) -> None:
        """Remove entries at the top whose task was cancelled or triggered since."""
        while self._queue and self._queue[0][2] != self._queue[0][3].turn:
            heapq.heappop(self._queue)

    def _take_due(self) -> None:
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            self._drop_void_locked()
            while self._queue and self._queue[0][0] <= now_ns:
                task = heapq.heappop(self._queue)[3]
                task.running = True
                self._running.append(task)
                self._drop_void_locked()

    def _step(self, task: ScheduledTask) -> bool:
        if task.cancelled:
            return False
        started_ns = self._clock.monotonic_ns()
        try:
            more = task.step()
            task.error = ""
        except BaseException as error:  # whatever it is: the task is in hand, and must not be lost
            more = False
            task.failures += 1
            before, task.error = task.error, f"{type(error).__name__}: {error}"
            if task.period_ms is None and task.error == before:
                self.thread.failures.counted()  # said at the first try
            else:
                self.thread.failures.note(f"the background task {task.name}", error)
        took_ns = self._clock.monotonic_ns() - started_ns
        task.longest_step_ns = max(task.longest_step_ns, took_ns)
        if took_ns > PYTHON_STEP_MS_MAX * NS_PER_MS:
            task.slow_steps += 1
        return more

    def _finish(self, task: ScheduledTask) -> None:
        task.abandon()
        task.runs += 1
        with self._lock:
            task.running = False
            again_ms, task.again_ms = task.again_ms, None
            if task.cancelled:
                return
            if again_ms is not None:
                self._enqueue_locked(task, again_ms)
            elif task.period_ms is not None:
                self._enqueue_locked(task, task.period_ms)
            elif task.error:
                self._enqueue_locked(task, TASK_RETRY_MS)
            else:
                self._forget_locked(task)

    def _loop(self) -> None:
        while self._sleep_until_due():
            self.run_due()
        while self._running:
            self._running.popleft().abandon()

    def _sleep_until_due(self) -> bool:
        """Block until a task is due; False when the scheduler has been stopped."""
        with self._lock:
            while not self._stopping:
                self._drop_void_locked()
                deadline_ns = self._queue[0][0] if self._queue else None
                if deadline_ns is not None and deadline_ns <= self._clock.monotonic_ns():
                    return True
                self._clock.wait_until(self._changed, deadline_ns)
            return False
