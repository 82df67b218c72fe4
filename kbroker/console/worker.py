"""The threads that make the console's pages: one for pages, one for those that read for seconds.

    control loop: submit -> queue of CONSOLE_JOBS_MAX -> thread: work(job) -> future -> control loop

Each begins with its first job. A job is given up when its visitor has gone or its time is over:
`Job.pause`, which the work calls after every 200 rows, then raises `Ended`; between two pauses it
waits for a broker for `CONSOLE_CLIENT_TIMEOUT_MS` at most. What a job raises is its future's, and
never the thread's. Neither the control loop nor the thread of scrapes makes pages, so neither
waits for one.

While a page is made garbage is collected seldom: a page of 10,000 topics has 100,000 objects, which
are freed with it, and each collection would look at all of them with the GIL, for 30 ms. A page
that ends by an error lets go of them as well: the error's traceback keeps no variables.

`submit` and `stop` on the control loop. Locks, leaves: a condition around the queue; one around the
number of pages that are being made.
"""

from __future__ import annotations

import gc
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

from kbroker.clock import NS_PER_MS, Clock, let_go_of_gil
from kbroker.console.asked import Ended
from kbroker.limits import CONSOLE_JOBS_MAX
from kbroker.own_thread import OwnThread

# More than there were before, until garbage is collected while pages are made.
OBJECTS_MAX: Final = 300_000


class Busy(Exception):
    """As many jobs wait as may, or the broker stops."""


class _Collecting:
    """Of garbage, in the whole process."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._pages = 0
        self._usual = (0, 0, 0)

    @contextmanager
    def seldom(self) -> Iterator[None]:
        with self._lock:
            if self._pages == 0:
                self._usual = gc.get_threshold()
                gc.set_threshold(OBJECTS_MAX, *self._usual[1:])
            self._pages += 1
        try:
            yield
        finally:
            with self._lock:
                self._pages -= 1
                if self._pages == 0:
                    gc.set_threshold(*self._usual)


_COLLECTING: Final = _Collecting()


class Job:
    """One piece of work. `pause` on its thread, the rest on any."""

    __slots__ = ("_clock", "_deadline_ns", "_half_ns", "_work", "future", "wanted")

    def __init__(self, work: Callable[[Job], Any], clock: Clock, time_ms: int) -> None:
        """`time_ms`: from now on, the wait in the queue included."""
        self.future: Future[Any] = Future()
        self.wanted = True
        self._work = work
        self._clock = clock
        now_ns = clock.monotonic_ns()
        self._deadline_ns = now_ns + time_ms * NS_PER_MS
        self._half_ns = now_ns + time_ms * NS_PER_MS // 2

    def leave(self) -> None:
        """The visitor has gone."""
        self.wanted = False
        self.future.cancel()

    @property
    def is_late(self) -> bool:
        return self._clock.monotonic_ns() >= self._deadline_ns

    @property
    def is_half_over(self) -> bool:
        return self._clock.monotonic_ns() >= self._half_ns

    def pause(self) -> None:
        let_go_of_gil()
        if not self.wanted or self.is_late:
            raise Ended

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.pause()
            with _COLLECTING.seldom():
                made = self._work(self)
            self.future.set_result(made)
        except BaseException as error:
            # Its frames have the job, the job has the error: only a collection would free them.
            traceback.clear_frames(error.__traceback__)
            self.future.set_exception(error)


class Worker:
    """`tidy` is called on the thread after each job, `end` as the last thing on it."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        tidy: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self._name: Final = name
        self._clock: Final = clock
        self._tidy: Final = tidy
        self._end: Final = end
        self._jobs: deque[Job] = deque()
        self._running: Job | None = None
        self._changed = threading.Condition()
        self._ending = False
        self._thread: OwnThread | None = None

    def submit(self, work: Callable[[Job], Any], time_ms: int) -> Job:
        """Busy; else `work` has been called with the job when the job's future is done. A thread
        that cannot start is an error of this job alone: the next one tries again."""
        job = Job(work, self._clock, time_ms)
        with self._changed:
            if len(self._jobs) >= CONSOLE_JOBS_MAX:
                # Those whose visitors have gone keep out no other.
                self._jobs = deque(each for each in self._jobs if each.wanted)
            if self._ending or len(self._jobs) >= CONSOLE_JOBS_MAX:
                raise Busy
        if self._thread is None or self._thread.dead:
            thread = OwnThread(self._name, self._loop, self._given_up)
            thread.start()
            self._thread = thread
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        return job

    def stop(self) -> None:
        """Jobs that wait are refused, the one under way is given up at its next pause; the thread
        ends after it."""
        with self._changed:
            self._ending = True
            waiting = self._take_all()
            if self._running is not None:
                self._running.wanted = False
            self._changed.notify()
        _refuse(waiting)

    @property
    def thread(self) -> OwnThread | None:
        """A dead one is none: the next job gets another."""
        return None if self._thread is None or self._thread.dead else self._thread

    def _take_all(self) -> list[Job]:
        jobs = list(self._jobs)
        self._jobs.clear()
        return jobs

    def _given_up(self) -> None:
        with self._changed:
            waiting = self._take_all()
        _refuse(waiting)

    def _loop(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            self._tidy()
            job = None  # while there is no other, nothing keeps its answer
        self._end()

    def _next(self) -> Job | None:
        with self._changed:
            self._running = None
            while not self._jobs and not self._ending:
                self._changed.wait()
            if self._ending:
                return None
            self._running = self._jobs.popleft()
            return self._running


def _refuse(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.set_running_or_notify_cancel():
            job.future.set_exception(Busy())
