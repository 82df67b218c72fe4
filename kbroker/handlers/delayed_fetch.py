"""Deadlines of parked fetches: one delayed operation for all fetches of one tick.

The fetches themselves are C nodes on their partitions, completed by appends without the GIL. What
Python holds is the longest wait: the first fetch of a tick makes one operation, and when the time
wheel reaches it, every fetch of that tick that is still parked is answered with what there is. So
ten thousand consumers cost the wheel a few hundred entries a second, not ten thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.purgatory.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.handlers._hot import HotPath
    from kbroker.purgatory.purgatory import Purgatory


class ParkedFetchesDue(DelayedOperation):
    """The deadline of one tick; nothing but time completes it."""

    __slots__ = ("_hot", "_tick")

    def __init__(self, hot: HotPath, tick: int, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._hot = hot
        self._tick = tick

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self._hot.expire(self._tick)


class FetchDeadlines:
    """Puts the ticks that the hot path announces into the fetch purgatory."""

    def __init__(self, hot: HotPath, purgatory: Purgatory, clock: Clock) -> None:
        self._hot = hot
        self._purgatory = purgatory
        self._clock = clock

    def watch(self, tick: int) -> None:
        """Called by a handler thread, once per tick."""
        delay_ms = max(1, self._hot.tick_deadline_ms(tick) - self._clock.monotonic_ms())
        operation = ParkedFetchesDue(self._hot, tick, delay_ms)
        self._purgatory.try_complete_else_watch(operation, (tick,))
