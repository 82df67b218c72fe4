"""The asyncio loop of one thread of a simulated broker; its time is the simulation's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.loop import StepLoop


class ThreadLoop(asyncio.AbstractEventLoop):
    """The part of a loop that fetchers use, on a thread: time and timers are the world's."""

    def __init__(self, world: StepLoop, put: Callable[[Callable[[], object]], None]) -> None:
        self._world = world
        self._put = put
        self._tasks: list[asyncio.Task[Any]] = []

    # --- the interface for a fetcher manager ---

    def submit(self, work: Any) -> Any:
        return self.create_task(work)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    # --- the interface for asyncio ---

    def time(self) -> float:
        return self._world.time()

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._put(partial(_run, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.call_at(when, self._put, partial(_run, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **how: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self, **how)
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._world.call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()
