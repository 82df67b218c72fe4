"""The control loop, which comes up when it is first needed, or after the ready line.

A start that needs no loop does not wait for uvloop to be imported.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.own_thread import OwnThread
    from kbroker.peer.control_loop import ControlLoop

T = TypeVar("T")


class LoopOnDemand:
    """`submit` starts it; `stop` ends it, if it was started."""

    def __init__(self, name: str = "kbroker-control") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: ControlLoop | None = None

    @property
    def thread(self) -> OwnThread | None:
        return None if self._loop is None else self._loop.thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; from any thread that is not the loop's."""
        with self._lock:
            if self._loop is None:
                from kbroker.peer.control_loop import ControlLoop

                loop = ControlLoop(self._name)
                loop.start()
                self._loop = loop
        return self._loop.submit(work)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.stop()
