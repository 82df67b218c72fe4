"""Threads that may wait for a log, for callers that may not: the timer, a loop, the controller's.

    timer, loop, controller -> put -> the worker of the log's data directory -> an append

Each data directory has a worker of its own, which begins with the first work, so one that hangs
keeps no other waiting. A worker whose work hangs keeps the other logs of its directory waiting for
STUCK_MS; then the next call has another worker take its place, and the work that waits. Up to
HANGING_MAX of a directory may hang so; after that its work waits for them. It is not the lane that
opens and removes logs (`log_lanes.py`): a log that hangs must not delay those. Logs that are not
here have a worker of their own: what is asked of one is refused without a disk.

The ends of groups' timers take turns with the other work: thousands of sessions that end in one
moment, which takes seconds, make a transaction's marker wait for one of them.

The queue has what callers put into it; each of them says why that is bounded. After `stop` nothing
is taken any more. A worker whose thread is lost (own_thread.py) is replaced, with a line, at once
or when a thread can begin again; the next one does what waits.

Any thread. Lock: `_lock`, around the workers; below it a worker's own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.log.upkeep.lane import Lane, MakeLane, ThreadLane, Work, replace_lane

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.failures import Failures
    from kbroker.own_thread import OwnThread
    from kbroker.purgatory.timer import CallLater
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

THREAD_NAME: Final = "kbroker-log-worker"
STUCK_MS: Final = 500
HANGING_MAX: Final = 4


class LogWorkers:
    """See the head of this file."""

    def __init__(
        self,
        path_of: Callable[[TopicPartition], Path | None],
        clock: Clock,
        failures: Failures,
        make: MakeLane | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        """`path_of` says where a log is, None if it is not here. `call_later`: to look for workers
        that hang; None: the next work looks."""
        self._call_later: Final = call_later
        self._looks = False
        self._path_of: Final = path_of
        self._clock: Final = clock
        self._failures: Final = failures
        self._make: Final = make or partial(ThreadLane, name=THREAD_NAME, lost=self._look)
        self._lock: Final = threading.Lock()
        self._workers: dict[Path | None, Lane] = {}
        self._hanging: dict[Path | None, list[Lane]] = {}
        self._is_stopped = False

    def put(
        self, place: TopicPartition, call: Callable[[], object], *, of_group: bool = False
    ) -> None:
        """Have it done after the calls of its kind that came before it for logs of the same data
        directory; those that hang are not waited for. `of_group`: it is a group's own step."""
        path = self._path_of(place)
        directory = None if path is None else path.parent
        work = Work(call, takes_turns=of_group)
        with self._lock:
            if self._is_stopped:
                return
            worker = self._workers.get(directory)
            if worker is None:
                worker = self._workers[directory] = self._make(self._over, self._clock)
            elif worker.is_lost or worker.is_stuck(STUCK_MS):
                worker = self._replaced(directory, worker)
            worker.put(work)
            if worker.left > 1 or worker.is_lost:
                self._look_later_locked()

    def _look_later_locked(self) -> None:
        if self._call_later is not None and not self._looks and not self._is_stopped:
            self._looks = True
            self._call_later(STUCK_MS, self._look)

    def _look(self) -> None:
        """Whether work waits for work that hangs, or for a thread that is lost: no other may be
        put for long."""
        with self._lock:
            self._looks = False
            if self._is_stopped:
                return
            for directory, worker in list(self._workers.items()):
                if worker.is_lost or (worker.left > 1 and worker.is_stuck(STUCK_MS)):
                    self._replaced(directory, worker)
            if any(worker.left > 1 or worker.is_lost for worker in self._workers.values()):
                self._look_later_locked()

    def _replaced(self, directory: Path | None, worker: Lane) -> Lane:
        """The one that goes on for a worker that hangs or is lost; that itself where too many hang,
        or no other can begin."""
        hanging = [each for each in self._hanging.get(directory, ()) if each.left]
        self._hanging[directory] = hanging
        if len(hanging) == HANGING_MAX and not worker.is_lost:
            return worker
        fresh = self._make(self._over, self._clock)
        try:
            replace_lane(worker, fresh)
        except (RuntimeError, MemoryError) as error:
            self._failures.note("another worker for logs", error)
            return worker
        if worker.is_lost:
            self._failures.counted()
            logger.error("%s of %s is lost, and is replaced", THREAD_NAME, directory or "no log")
        else:
            hanging.append(worker)
        self._workers[directory] = fresh
        return fresh

    def _over(self, work: Work, late: bool) -> None:
        if work.error is not None:
            self._failures.note("work on a log", work.error)

    def stop(self) -> None:
        """After all that was put; a worker that hangs is left."""
        with self._lock:
            self._is_stopped = True
            workers = self._all_locked()
        for worker in workers:
            worker.stop()

    def _all_locked(self) -> list[Lane]:
        hanging = (each for some in self._hanging.values() for each in some)
        return [*self._workers.values(), *hanging]

    @property
    def threads(self) -> Iterator[OwnThread]:
        with self._lock:
            workers = self._all_locked()
        for worker in workers:
            if worker.thread is not None:
                yield worker.thread
