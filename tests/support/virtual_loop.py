"""An asyncio loop whose time is a number: it jumps to the next timer when nothing is left to do.

What runs on it is the code that runs on a real loop, in the same order every time, and an hour of
waiting takes no time. Nothing outside of the loop can wake it: who waits for nothing is an error.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from kbroker.clock import NS_PER_MS

T = TypeVar("T")
START_WALL_MS = 1_700_000_000_000


class _Jumping(selectors.SelectSelector):
    """Waits by turning the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen again, and a task waits for it")
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; other tasks are cancelled after it."""
        try:
            return self.run_until_complete(work)
        finally:
            left = asyncio.all_tasks(self)
            for task in left:
                task.cancel()
            if left:
                self.run_until_complete(asyncio.wait(left))
            self.close()


class HastyLoop(VirtualLoop):
    """Its timers come some milliseconds early, as libuv's do, which counts from when it last
    looked; and a look at its time takes a part of a millisecond."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice

    def time(self) -> float:
        self._jumping.now_s += self._dice.uniform(0, 0.0005)
        return super().time()

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        early_s = self._dice.uniform(0, 0.003)
        return super().call_at(when - early_s, callback, *args, context=context)


class LoopClock:
    """A `Clock` that shows the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.worked_ms = 0  # what a test says that work took, beside the waiting

    def monotonic_ns(self) -> int:
        return round(self._loop.time() * 1e9) + self.worked_ms * NS_PER_MS

    def monotonic_ms(self) -> int:
        return self.monotonic_ns() // NS_PER_MS

    def wall_ms(self) -> int:
        return START_WALL_MS + self.monotonic_ms()

    def wait_until(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        raise NotImplementedError("what runs on a loop waits there")
