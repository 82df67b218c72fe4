"""One thread's whole world: an asyncio loop whose time is a number, one callback a step.

The real fetchers are tasks on it, everything else is callbacks. Nothing waits: when no callback is
ready, the time becomes that of the next timer. The order is the same every time, and an hour costs
nothing. After every step `after_step` is called. An error that it raises ends the run, and so does
an error in any callback.

A `Process` is one start of a broker, or the clients. While it is paused its callbacks are kept, in
their order; after its death they never run.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from kbroker.clock import NS_PER_MS

T = TypeVar("T")
Scheduled = tuple[float, int, "Callback"]
START_WALL_MS = 1_700_000_000_000

# The threads of a broker, where it has some (scheduler.py); appends have one for each log.
CONTROLLER, LINKS, STORE, WATCH, BACKGROUND = "controller", "links", "store", "watch", "background"
HANDLER, GROUPS, LOADER, WAITS, APPENDS = "handler", "groups", "loader", "waits", "appends to"
LOOKS = "looks"  # of the checks of the simulation


class Callback:
    """The part of asyncio's handles that tasks, futures and timeouts use. The code of a history has
    no context variables, so no context is kept."""

    __slots__ = ("args", "call", "is_cancelled")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call = call
        self.args = args
        self.is_cancelled = False

    def cancel(self) -> None:
        """It stays where it is until its time has come."""
        self.is_cancelled = True


class StepLoop(asyncio.AbstractEventLoop):
    """See the head of this file: the part of a loop that tasks, futures and timeouts use."""

    def __init__(self, after_step: Callable[[], None]) -> None:
        self._after_step = after_step
        self.now_s = 0.0
        self._ready: deque[Callback] = deque()
        # By time, and in the order in which they were asked for.
        self._timers: list[Scheduled] = []
        self._asked = 0
        self._failure: BaseException | None = None
        self.steps = 0

    def run_until(self, end_ms: int) -> None:
        """Run all callbacks that are due up to then."""
        end_s = end_ms / 1000
        asyncio._set_running_loop(self)
        try:
            self._run_until(end_s)
        finally:
            asyncio._set_running_loop(None)
        self.now_s = max(self.now_s, end_s)

    def run_on(self, for_ms: int) -> None:
        """Within a step, run the callbacks of that time."""
        self._run_until(self.now_s + for_ms / 1000)

    def _run_until(self, end_s: float, turns_max: int = sys.maxsize) -> bool:
        """False: no callback is left up to then. A cancelled callback takes a turn, too."""
        ready, timers, after_step = self._ready, self._timers, self._after_step
        for _ in range(turns_max):
            if ready:
                callback = ready.popleft()
            elif timers and timers[0][0] <= end_s:
                when, _, callback = heapq.heappop(timers)
                if when > self.now_s:
                    self.now_s = when
            else:
                return False
            if callback.is_cancelled:
                continue
            try:
                callback.call(*callback.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._fails(error)
            self.steps += 1
            if self._failure is not None:
                raise self._failure
            after_step()
        return True

    @property
    def now_ms(self) -> int:
        return int(self.now_s * 1000 + 1e-6)

    def later(self, delay_ms: float, call: Callable[..., object], *args: Any) -> Callback:
        return self._add(self.now_s + delay_ms / 1000, Callback(call, args))

    def _add(self, when: float, callback: Callback) -> Callback:
        self._asked += 1
        heapq.heappush(self._timers, (when, self._asked, callback))
        return callback

    # --- the interface for asyncio ----------------------------------------------------------------

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        made = Callback(callback, args)
        self._ready.append(made)
        return made

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> Callback:  # fmt: skip
        return self._add(self.now_s + delay, Callback(callback, args))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> Callback:  # fmt: skip
        return self._add(when, Callback(callback, args))

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], **how: Any
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, **how)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self._fails(error)

    def _fails(self, error: BaseException) -> None:
        """The first ends the run."""
        if self._failure is None:
            self._failure = error

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


class LoopClock:
    """A `Clock` of the loop's time; the wall clock may be wrong by `shift_ms`."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self.shift_ms = 0

    def monotonic_ns(self) -> int:
        return round(self._loop.now_s * 1e9)

    def monotonic_ms(self) -> int:
        return round(self._loop.now_s * 1e9) // NS_PER_MS

    def wall_ms(self) -> int:
        return START_WALL_MS + self.monotonic_ms() + self.shift_ms

    def wait_until(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        raise NotImplementedError("code on a loop waits by its timers")


class Process:
    """See the head of this file."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self._held: list[tuple[Callable[[], object], str]] = []
        self.alive = True
        self.paused = False
        # Has a callback run on the thread of that name; None: all are callbacks of the loop.
        self.on_thread: Callable[[str, Callable[[], object]], None] | None = None

    def run(self, call: Callable[[], object], thread: str = "") -> None:
        """Now, or when it goes on."""
        if not self.alive:
            return
        if self.paused:
            self._held.append((call, thread))
        else:
            self.work(call, thread)

    def work(self, call: Callable[[], object], thread: str) -> None:
        """Run a callback of the process itself, on that thread."""
        if thread and self.on_thread is not None:
            self.on_thread(thread, call)
        else:
            call()

    @property
    def now_ms(self) -> float:
        return self._loop.now_s * 1000

    def later(self, delay_ms: float, call: Callable[[], object], thread: str = "") -> None:
        self._loop.later(delay_ms, self.run, call, thread)

    def go_on(self) -> None:
        """A pause is over: the callbacks that were kept run at once, in their order."""
        self.paused = False
        held, self._held = self._held, []
        for call, thread in held:
            self._loop.call_soon(self.run, call, thread)

    def die(self) -> None:
        self.alive = False
        self._held.clear()
