"""A timer of something that a coordinator keeps, set and cleared under that thing's lock.

A timer that was cleared too late fires with a token that is outdated, and does nothing.

The end of a group's timer may write to the group's log, or wait for a lock that a write holds. The
timer's thread may wait for neither, so a worker of that log runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.purgatory.timer import CallLater


# `on_worker(group_id, call)`: have it done by a thread that may wait for the log of that group.
OnWorker = Callable[[str, Callable[[], object]], object]


def at_once(group_id: str, call: Callable[[], object]) -> None:
    """An `OnWorker` without a worker."""
    call()


def later_on_worker(call_later: CallLater, on_worker: OnWorker, group_id: str) -> CallLater:
    """Timers of one group."""

    def later(delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        return call_later(delay_ms, partial(on_worker, group_id, call))

    return later


class Deadline:
    """At most one timer is set at a time."""

    __slots__ = ("_call", "_call_later", "_cancel", "_token")

    def __init__(self, call_later: CallLater, call: Callable[[int], object]) -> None:
        self._call_later = call_later
        self._call = call
        self._cancel: Callable[[], object] | None = None
        self._token = 0

    def set(self, delay_ms: int) -> None:
        self.clear()
        self._cancel = self._call_later(delay_ms, partial(self._call, self._token))

    def clear(self) -> None:
        self._token += 1
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def is_due(self, token: int) -> bool:
        """Whether the timer that fired with this token is the one that was set last."""
        if token != self._token or self._cancel is None:
            return False
        self._cancel = None
        return True
