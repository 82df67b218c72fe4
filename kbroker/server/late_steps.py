"""Steps of a start that come after the ready line, where requests are served already.

What such a step needs may be short for a moment: descriptors while a module is imported, memory, a
thread. That must not end a broker that serves. A step that fails is noted and left to the
scheduler, which tries it again until it works (`Scheduler.failing` says what is tried again, and
/readyz shows it). A step that has not worked by the stop is not stopped.

`step` makes the steps; the lifecycle's thread starts and stops them, the scheduler's tries again.
One lock: no step begins on the scheduler's thread while or after it is stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from kbroker.failures import Failures
from kbroker.limits import TASK_RETRY_MS
from kbroker.scheduler import Scheduler
from kbroker.server.lifecycle import Step, nothing


class LateSteps:
    def __init__(self, scheduler: Scheduler) -> None:
        self.failures: Final = Failures("start")
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._waiting: set[str] = set()

    def step(
        self, name: str, start: Callable[[], None], stop: Callable[[], None] = nothing
    ) -> Step:
        return Step(name, partial(self._start, name, start), partial(self._stop, name, stop))

    def _start(self, name: str, start: Callable[[], None]) -> None:
        try:
            start()
        except Exception as error:
            self.failures.note(f"step {name}", error)
            with self._lock:
                self._waiting.add(name)
            self._scheduler.schedule(
                f"start of {name}",
                partial(self._try_again, name, start),
                None,
                TASK_RETRY_MS,
                f"{type(error).__name__}: {error}",
            )

    def _try_again(self, name: str, start: Callable[[], None]) -> None:
        with self._lock:
            if name in self._waiting:
                start()
                self._waiting.remove(name)

    def _stop(self, name: str, stop: Callable[[], None]) -> None:
        with self._lock:
            if name in self._waiting:
                self._waiting.remove(name)
                return
        stop()
