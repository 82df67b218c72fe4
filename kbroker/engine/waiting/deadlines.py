"""Deadlines of parked requests: one delayed operation for all fetches and produces of one tick.

The requests themselves are C nodes on their partitions, completed by appends and followers without
the GIL. What Python holds is the longest wait: the first request of a tick makes one operation, and
when the time wheel reaches it, every request of that tick that is still parked is answered with
what there is. So ten thousand consumers cost the wheel a few hundred entries a second, not ten
thousand.

An entry stays until its time has come, whatever becomes of its requests. So each tick has one, and
there are some thousands at most: ticks of long waits are far apart (`_parked.pyx`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kbroker.purgatory.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.purgatory.purgatory import Purgatory


class ParkedRequests(Protocol):
    """The hot path, as the owner of parked requests."""

    def tick_deadline_ms(self, tick: int) -> int: ...

    def expire(self, tick: int) -> None: ...


class ParkedRequestsDue(DelayedOperation):
    """The deadline of one tick; nothing but time completes it."""

    __slots__ = ("_due", "_tick")

    def __init__(self, due: Callable[[int], None], tick: int, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._due = due
        self._tick = tick

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self._due(self._tick)


class FetchDeadlines:
    """Puts the ticks that the hot path announces into the fetch purgatory. Any thread."""

    def __init__(self, hot: ParkedRequests, purgatory: Purgatory, clock: Clock) -> None:
        self._hot = hot
        self._purgatory = purgatory
        self._clock = clock
        self._lock = threading.Lock()  # of the set alone
        self._waiting: set[int] = set()

    def watch(self, tick: int) -> None:
        """Called by a handler thread when the request that made the tick new is listed."""
        with self._lock:
            if tick in self._waiting:
                return
            self._waiting.add(tick)
        delay_ms = max(1, self._hot.tick_deadline_ms(tick) - self._clock.monotonic_ms())
        try:
            operation = ParkedRequestsDue(self._due, tick, delay_ms)
            self._purgatory.try_complete_else_watch(operation, (tick,))
        except BaseException:
            self._forget(tick)
            raise

    def _due(self, tick: int) -> None:
        # Forgotten first: a request that is listed after the look of `expire` has the tick watched
        # again.
        self._forget(tick)
        self._hot.expire(tick)

    def _forget(self, tick: int) -> None:
        with self._lock:
            self._waiting.discard(tick)
