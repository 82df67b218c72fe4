"""Stand-ins for threads and the wall clock, which a simulated broker's real group coordinator gets.

The loader has no thread. It does its queued work a piece at a time, each a step of its process,
with time between them, so that everything else may happen in the middle of a load. Timers are the
loop's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from kbroker.coordinator.runtime.loader import LATE_MS, Loader
from kbroker.purgatory.timer import CallLater
from tests.simulation.loop import GROUPS, LOADER, LoopClock, Process


def shift_to(clock: LoopClock) -> int:
    """The loop's wall clock less the machine's, which compiled code reads, in milliseconds."""
    return clock.wall_ms() - round(time.time() * 1000)


# A piece of a log from a slow disk.
SLOW_PIECE_MS = (300, 500)


class CallsLater:
    """The part of a `Timer` that groups use."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def call_later(self) -> CallLater:
        return self._call_later

    def _call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        waits = [call]
        self._process.later(delay_ms, lambda: waits.pop()() if waits else None, GROUPS)
        return waits.clear


class SteppedLoader(Loader):
    """See the head of this file."""

    def __init__(self, process: Process, dice: random.Random, *how: Any, **settings: Any) -> None:
        super().__init__(*how, **settings)
        self._process = process
        self._dice = dice
        self._walk: Iterator[None] | None = None
        self.at_piece: Callable[[], None] = lambda: None
        self.slow_until_ms = 0.0
        self._is_slow = False  # as long as there is something to be loaded

    def start(self) -> None:
        """There is no thread to be started."""

    def _put(self, job: Any) -> bool:
        put = super()._put(job)
        self._process.work(self._begin, LOADER)
        return put

    def _begin(self) -> None:
        if self._walk is None:
            self._walk = self.work_off()
            self._is_slow = self._dice.randrange(10) == 0
            self._go_on()

    def _go_on(self) -> None:
        """Reading a piece takes no time, or as long as a slow disk."""
        if self.slow_until_ms > self._process.now_ms:
            self._process.later(self._dice.uniform(*SLOW_PIECE_MS), self._turn, LOADER)
            return
        slow = self._is_slow or self._dice.randrange(20) == 0
        self._process.later(
            self._dice.uniform(5, 200) if slow else self._dice.uniform(0.05, 2),
            self._turn,
            LOADER,
        )

    def _turn(self) -> None:
        walk = self._walk
        if walk is None:
            return
        self.at_piece()
        try:
            next(walk)
        except StopIteration:
            self._walk = None
            if self._late:
                self._process.later(LATE_MS, self._begin, LOADER)
        else:
            self._go_on()
