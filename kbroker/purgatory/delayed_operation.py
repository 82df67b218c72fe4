"""An operation that cannot be answered yet: it ends exactly once, by an event or by its timeout.

A subclass says what it waits for:

- `try_complete` looks at the world; when the wait is over it returns `self.force_complete()`,
  otherwise False. It is never run by two threads at once (see `check`), must not block, and must
  not assume that it is called again once it has said False while nothing changes.
- `on_complete` sends the answer. It runs exactly once, on the thread that ended the wait: one that
  brought the event, the one that parked the operation, or the timer's. It runs after the operation
  has left purgatory and timer, so nothing it does can come back to it.
- `on_expiration` follows `on_complete` when the end was the timeout: counting, logging.

No lock is ever waited for here. The two per operation are only ever tried: `_once` is the
test-and-set that decides who ends it (taken once, never given back), `_checking` keeps the second
thread out of `try_complete`. So these methods may be called with other locks held, and an event may
arrive while another thread is inside; see `check` for why it is not lost.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from kbroker.purgatory.timer import TimerTask

if TYPE_CHECKING:
    from kbroker.purgatory.purgatory import Purgatory


class DelayedOperation(TimerTask):
    """The base of everything that can be parked; `delay_ms` is the longest wait."""

    __slots__ = ("_asked", "_checking", "_once", "keys", "parked", "purgatory")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._once = threading.Lock()
        self._checking = threading.Lock()
        self._asked = False
        # The purgatory's own, written under its lock.
        self.purgatory: Purgatory | None = None
        self.parked = False
        self.keys: Sequence[Hashable] = ()

    def try_complete(self) -> bool:
        """Look whether the wait is over, and if so return `self.force_complete()`."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Answer; called once in the life of the operation."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """The timeout ended the wait; called after `on_complete`."""

    @property
    def completed(self) -> bool:
        """Whether a thread has begun to end the operation (`on_complete` may still run)."""
        return self._once.locked()

    def force_complete(self) -> bool:
        """End the operation now; True for the one caller, of any thread, who did so."""
        if not self._once.acquire(False):
            return False
        if self.purgatory is not None:
            self.purgatory.forget(self)
        self.on_complete()
        return True

    def check(self) -> bool:
        """Try to complete because something may have changed; True if this call ended it.

        A thread that finds another one inside `try_complete` does not wait for it: it has left
        `_asked` set, and the one inside looks at that after leaving. Either the one inside
        cleared the flag after it was set, and then its look at the world comes after the event
        too, or it finds the flag set and goes round again. No event falls in between.
        """
        checking = self._checking
        self._asked = True
        while self._asked and not self._once.locked():
            if not checking.acquire(False):
                return False
            self._asked = False
            try:
                if self.try_complete():
                    return True
            finally:
                checking.release()
        return False

    def expire(self) -> bool:
        """End the operation as its timeout would; True if this call ended it."""
        if not self.force_complete():
            return False
        self.on_expiration()
        return True

    def run(self) -> None:
        """The timer's call: the longest wait is over."""
        if self.expire() and self.purgatory is not None:
            self.purgatory.count_expired()
