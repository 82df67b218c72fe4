"""Threads that may wait for a log, for callers that may not: the timer, a loop, the controller's.

    timer, loop, controller -> put -> the worker of the log's data directory -> an append

Each data directory has a worker of its own, which begins with the first work, so one that hangs
keeps no other waiting. It is not the lane that opens and removes logs (`log_lanes.py`): a log that
hangs must not delay those. Logs that are not here have a worker of their own: what is asked of one
is refused without a disk.

The queue has what callers put into it; each of them says why that is bounded. After `stop` nothing
is taken any more. Should a worker's thread be lost (own_thread.py), its work is not done, and there
is a line: the next start finds what is left to do.

Any thread. Lock: `_lock`, around the workers; below it a worker's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.log.upkeep.lane import Lane, MakeLane, ThreadLane, Work

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.failures import Failures
    from kbroker.own_thread import OwnThread
    from kbroker.types import TopicPartition

THREAD_NAME: Final = "kbroker-log-worker"


class LogWorkers:
    """See the head of this file."""

    def __init__(
        self,
        path_of: Callable[[TopicPartition], Path | None],
        clock: Clock,
        failures: Failures,
        make: MakeLane | None = None,
    ) -> None:
        """`path_of` says where a log is, None if it is not here."""
        self._path_of: Final = path_of
        self._clock: Final = clock
        self._failures: Final = failures
        self._make: Final = make or partial(ThreadLane, name=THREAD_NAME)
        self._lock: Final = threading.Lock()
        self._workers: dict[Path | None, Lane] = {}
        self._is_stopped = False

    def put(self, place: TopicPartition, call: Callable[[], object]) -> None:
        """Have it done after what was put before for logs of the same data directory."""
        path = self._path_of(place)
        directory = None if path is None else path.parent
        work = Work(call)
        with self._lock:
            if self._is_stopped:
                return
            worker = self._workers.get(directory)
            if worker is None:
                worker = self._workers[directory] = self._make(self._over, self._clock)
            worker.put(work)

    def _over(self, work: Work, late: bool) -> None:
        if work.error is not None:
            self._failures.note("work on a log", work.error)

    def stop(self) -> None:
        """After all that was put; a worker that hangs is left."""
        with self._lock:
            self._is_stopped = True
            workers = list(self._workers.values())
        for worker in workers:
            worker.stop()

    @property
    def threads(self) -> Iterator[OwnThread]:
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            if worker.thread is not None:
                yield worker.thread
