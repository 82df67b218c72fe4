"""The time wheel of a simulated broker: its thread is a step of the process when a task is due."""

from __future__ import annotations

from kbroker.purgatory.timer import Timer, TimerTask
from tests.simulation.loop import WAITS, LoopClock, Process


class SteppedTimer(Timer):
    def __init__(self, process: Process, clock: LoopClock) -> None:
        super().__init__(clock)
        self._process = process

    def add_locked(self, task: TimerTask, tick: int) -> None:
        super().add_locked(task, tick)
        # Ticks are rounded up.
        self._process.later(task.delay_ms + 1, self.advance, WAITS)
