"""The lanes of a simulated broker with threads: the thread that puts work into a lane does it.

The controller's thread does the work in the place of the lane's thread. In a real broker it waits
for that thread for a bounded time, also while a disk hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.clock import SystemClock
from kbroker.log.log_lanes import LogLanes
from kbroker.log.upkeep.lane import AtOnce, Work

if TYPE_CHECKING:
    from kbroker.log.manager import LogManager
    from tests.simulation.scheduler import Scheduler


class _PlayedLane(AtOnce):
    """The thread that does its work is marked meanwhile."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def put(self, work: Work) -> None:
        thread = self._scheduler.running
        if thread is None:
            super().put(work)
            return
        thread.in_lane += 1
        super().put(work)  # keeps the error that the work raises
        thread.in_lane -= 1


def played_lanes(scheduler: Scheduler, logs: LogManager) -> LogLanes:
    """Of one start of a broker."""
    return LogLanes(logs, SystemClock(), lambda over, clock: _PlayedLane(scheduler))
