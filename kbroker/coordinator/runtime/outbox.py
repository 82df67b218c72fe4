"""Work that is decided under a lock and done without it, in the order of the decisions.

Answers and writes are collected while the lock is held and run afterwards by one thread at a time,
so that two threads that decide one after the other cannot write or answer the other way round. A
thread that finds another one running leaves its own work to it. A call may add work itself, which
runs after it.

Bound: an answer for each request that waits there, and a write for each decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from kbroker.failures import Failures


class Outbox:
    """See the module. `add` is called with the lock held, `run` without it."""

    __slots__ = ("_calls", "_failures", "_lock", "_running")

    def __init__(self, lock: threading.Lock, failures: Failures) -> None:
        self._lock = lock
        self._failures = failures
        self._calls: deque[Callable[[], object]] = deque()
        self._running = False

    def add(self, call: Callable[[], object]) -> None:
        self._calls.append(call)

    def run(self) -> None:
        """Returns when nothing is left, or at once where another thread is at it."""
        if not self._calls:
            return
        with self._lock:
            if self._running:
                return
            self._running = True
        while True:
            with self._lock:
                if not self._calls:
                    self._running = False
                    return
                call = self._calls.popleft()
            try:
                call()
            except BaseException as error:  # whatever it is, the calls after it must run
                self._failures.note("an answer or a write of a coordinator", error)
