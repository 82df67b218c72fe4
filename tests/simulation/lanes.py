"""The lanes of a simulated broker with threads: their work is done where it is put.

The controller's thread does it in the place of the lane's, for which a real one waits no longer
than for a time, whatever a disk does.
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
        super().put(work)  # keeps what the work raises
        thread.in_lane -= 1


def played_lanes(scheduler: Scheduler, logs: LogManager) -> LogLanes:
    """Of one start of a broker."""
    return LogLanes(logs, SystemClock(), lambda over, clock: _PlayedLane(scheduler))
