"""The order in which a broker starts and stops, as one list that can be read and tested.

A step is a name and two functions. `start` goes down the list; when a step fails, those that have
started are stopped in reverse and the failure is the caller's. `stop` goes up the list again; a
step that fails to stop is logged and counted and never keeps the others from stopping, so a full
disk does not leave a port bound.

`start` belongs to the thread that builds the broker; `give_up` has it end after the step that it
is at, and stop what has started. `stop` may be called by any thread, also while `start` is running:
then no further step starts, the one that is starting finishes, and it and all
before it are stopped. Both are idempotent; a lifecycle that was stopped does not start again. The
lock is held while a step runs; it is re-entrant, so that a step may ask for the end of the whole;
a signal handler, which must take none, calls `give_up`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.errors import UserError

logger: Final = logging.getLogger("kbroker.server")


def nothing() -> None:
    """For a step that has only one direction, and a call that may be left out."""


@dataclass(frozen=True)
class Step:
    """One thing that is brought up before what follows it, and down after that."""

    name: str
    start: Callable[[], None] = nothing
    stop: Callable[[], None] = nothing


class Lifecycle:
    """A list of steps and how far up it the broker is."""

    def __init__(self, steps: Sequence[Step]) -> None:
        names = [step.name for step in steps]
        if len(set(names)) != len(names):
            raise ValueError(f"two steps of one name among {names}")
        self._steps = tuple(steps)
        self._lock = threading.RLock()
        self._started: list[Step] = []
        self._failures: list[tuple[str, Exception]] = []  # of steps that stopped
        self._stopping = False

    def start(self) -> bool:
        """Start what has not started; False if `stop` came first or in between.

        A step that fails is not itself stopped: it undoes its own half.
        """
        for step in self._steps:
            try:
                if not self._start_one(step):
                    logger.info("the start went no further than step %r", step.name)
                    self.stop()
                    return False
            except BaseException as error:
                if not isinstance(error, UserError):  # which says it all in its own line
                    logger.error("start: step %r failed", step.name)
                self.stop()
                raise
        return True

    def give_up(self) -> None:
        """Have the start, if it still goes on, begin no further step."""
        self._stopping = True

    def stop(self) -> list[tuple[str, Exception]]:
        """Stop what has started, last first; the failures up to now, each logged already."""
        self._stopping = True
        with self._lock:
            while self._started:
                step = self._started.pop()
                logger.debug("stopping %s", step.name)
                try:
                    step.stop()
                except Exception as error:
                    logger.exception("stop: step %r failed", step.name)
                    self._failures.append((step.name, error))
            return list(self._failures)

    @property
    def started(self) -> tuple[str, ...]:
        """Names of the steps that are up, in the order they came up."""
        return tuple(step.name for step in self._started)

    def _start_one(self, step: Step) -> bool:
        with self._lock:
            if self._stopping:
                return False
            if step in self._started:
                return True
            logger.debug("starting %s", step.name)
            step.start()
            self._started.append(step)
            if self._stopping:
                self.stop()  # asked for while the step was starting
                return False
            return True
