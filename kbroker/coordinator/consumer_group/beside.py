"""A thread that works for groups without their locks: large assignments, patterns.

Consumer groups and streams groups have one. Share groups have another: an assignment of theirs may
take seconds, and delays none of the others.

A job is a call without arguments. It is given in by a group, once for each of the two kinds until
it is done, so there are no more than two for each group. A job that raises is noted, and its group
is called all the same (the job sees to that). The thread begins with the first job. One that is
lost (own_thread.py) is replaced: a group waits for its job, and gives in no other one.

Any thread gives jobs in; `stop` lets the job that runs come to its end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from kbroker.errors import InvariantError
from kbroker.own_thread import OwnThread

Job = Callable[[], object]
START_AGAIN_S: Final = 1.0


class Beside:
    """See the module."""

    def __init__(self, name: str = "kbroker-assignments") -> None:
        """`name`: the thread's."""
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._stopping = self._started = False
        self.thread = OwnThread(name, self._run, self._lost)

    def submit(self, job: Job) -> bool:
        """False: the job will not run. A thread that could not start is started by the next job."""
        with self._changed:
            if self._stopping:
                return False
            if not self._start_locked():
                return False
            self._jobs.append(job)
            self._changed.notify()
        return True

    def _start_locked(self) -> bool:
        """Whether there is a thread now."""
        if not self._started:
            try:
                self.thread.start()
            except Exception as error:  # the system has no thread to spare, or no memory
                self.thread.failures.note("its start", error)
                if not self.thread.is_alive():  # else the memory was short after the start
                    return False
            self._started = True
        return True

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._jobs.clear()
            self._changed.notify()
        if self.thread.is_alive():
            self.thread.await_end()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                job = self._jobs.popleft()
            try:
                job()
            except Exception as error:
                self.thread.failures.note("a job for a group", error)

    def _lost(self) -> None:
        """On the thread, which ends then."""
        with self._changed:
            if self._stopping:
                return
            before = self.thread
            self.thread, self._started = OwnThread(before.name, self._run, self._lost), False
            self.thread.failures.note("the thread before it", InvariantError("it is lost"))
            while self._jobs and not self._stopping and not self._start_locked():
                self._changed.wait(START_AGAIN_S)
