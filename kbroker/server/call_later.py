"""A short action on the timer's thread after a delay: what handlers use for request timeouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.purgatory.timer import TimerTask

if TYPE_CHECKING:
    from kbroker.purgatory.timer import Timer


class _Later(TimerTask):
    __slots__ = ("_action", "_timer")

    def __init__(self, timer: Timer, delay_ms: int, action: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._timer = timer
        self._action = action

    def run(self) -> None:
        self._action()

    def cancel(self) -> bool:
        return self._timer.cancel(self)


class CallLater:
    """`call_later(delay_ms, action)` returns the function that cancels it."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer

    def __call__(self, delay_ms: int, action: Callable[[], object]) -> Callable[[], object]:
        task = _Later(self._timer, max(1, delay_ms), action)
        self._timer.add(task)
        return task.cancel
