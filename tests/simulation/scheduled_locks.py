"""Locks and conditions of a broker's Python, for which its threads wait in the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.clock import NS_PER_MS
from kbroker.testing import _schedule

if TYPE_CHECKING:
    from tests.simulation.scheduler import BrokerThread, Scheduler


class ScheduledLock:
    """A `threading.Lock` of a broker."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self._scheduler = scheduler
        self._held = False
        self._owner: BrokerThread | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        _schedule.pass_place()
        scheduler = self._scheduler
        until_ns = scheduler.now_ns() + (0 if not blocking else round(timeout * 1e9))
        gives_up = not blocking or timeout >= 0
        while self._held:
            left_ms = (until_ns - scheduler.now_ns()) / NS_PER_MS
            if gives_up and left_ms <= 0:
                return False
            scheduler.wait_for(
                self, f"the lock of {self.name}", self._owner, left_ms if gives_up else None
            )
        self._held, self._owner = True, scheduler.running
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held, self._owner = False, None
        self._scheduler.released(self)
        _schedule.pass_place()

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *how: object) -> None:
        self.release()


class ScheduledCondition:
    """A `threading.Condition` of a broker."""

    def __init__(self, scheduler: Scheduler, lock: ScheduledLock) -> None:
        self._scheduler = scheduler
        self._lock = lock
        self.acquire, self.release = lock.acquire, lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *how: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = self._scheduler
        began_ns = scheduler.now_ns()
        for_ms = None if timeout is None else timeout * 1000
        self._lock.release()
        scheduler.wait_for(self, f"the condition of {self._lock.name}", None, for_ms)
        self._lock.acquire()
        return timeout is None or scheduler.now_ns() < began_ns + round(timeout * 1e9)

    def notify(self, n: int = 1) -> None:
        self._scheduler.released(self)

    notify_all = notify
