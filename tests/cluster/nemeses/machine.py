"""A broker's machine: its disk is full, its wall clock jumps."""

from __future__ import annotations

import contextlib

from tests.cluster import clock
from tests.cluster.brokers import NODES
from tests.cluster.nemeses.base import Nemesis

IN_SYNC_S = 20.0
HOUR_S = 3_600


class DiskFull(Nemesis):
    """Every write finds no space; then there is some again, and a start where one is needed."""

    name, touches = "disk-full", ("disks",)
    isolated = True
    hold_s = (0.5, 6.0)

    def begin(self) -> str:
        self._node, line = self.victim()
        size = self.cluster.disks[self._node].fill()
        return f"{line}, {size >> 20} MiB"

    def end(self) -> str:
        self.cluster.disks[self._node].empty()
        broker = self.cluster.brokers[self._node]
        if not broker.alive:
            broker.start()
            return "it had ended"
        with contextlib.suppress(TimeoutError):
            self.cluster.wait_in_sync(IN_SYNC_S)
            return ""
        broker.restart()
        return "restarted"


class ClockJump(Nemesis):
    """One or all wall clocks are set hours ahead or back, and right again at the end."""

    name, touches = "clock", ("clocks",)

    def begin(self) -> str:
        self.hit = ()
        ahead_s = self.dice.choice((-1, 1)) * self.dice.choice((2, 60, HOUR_S, 6 * HOUR_S))
        self._nodes = list(NODES) if self.dice.random() < 0.2 else [self.victim()[0]]
        for node in self._nodes:
            self.cluster.clocks[node].set(ahead_s)
        return f"{' '.join(map(str, self._nodes))} {ahead_s:+d} s"

    def end(self) -> str:
        for node in self._nodes:
            self.cluster.clocks[node].set(0)
        return ""


ALL = (DiskFull, ClockJump) if clock.is_possible() else (DiskFull,)
