"""Where operations wait for an event on one of their keys, or for their timeout.

`try_complete_else_watch` parks an operation under its keys; `check_and_complete(key)` is called
after a change of the thing that the key names, and every operation parked there looks again. Keys
are any hashable values; nothing here knows what they mean.

No wake-up is lost. The operation is entered under its keys, and only then looks once more: a change
before that look is seen by it, a change after it finds the operation under the key.

Nothing has to be purged: an operation knows its keys, and the thread that ends it removes it from
all of them, and out of the timer, before the answer is sent. So an entry never outlives its
operation, a key never outlives its last entry, and ending costs the operation's own keys.

Any thread may call anything. The timer's lock guards the map of watchers as well; it is a leaf,
held for a few dictionary operations: neither `try_complete` nor `on_complete` runs under it. On the
way of every operation it is taken by acquire/release, at half the price of `with`. Callers hold no
lock that an answer might need. What raises in an operation woken here is logged and counted; the
others under the key are still woken, and the one that failed is left to its timeout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence

from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.purgatory.timer import Timer


def _every(operation: DelayedOperation) -> bool:
    return True


class Purgatory:
    """The parked operations of one kind."""

    def __init__(self, name: str, timer: Timer) -> None:
        self.name = name
        self._timer = timer
        self._lock = timer.lock
        # A watcher list is a dict for its order and for removal in O(1); it is never empty.
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._closed = False
        self._parked_total = 0
        self._ended_total = 0
        self._expired_total = 0
        self._failed_total = 0

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Sequence[Hashable]
    ) -> bool:
        """Park the operation unless it can end now; True if it has ended.

        An operation without a wait (`delay_ms` <= 0) ends here, as does any in a closed purgatory.
        What the first look raises is the caller's; from then on the operation answers for itself.
        """
        # No other thread knows the operation yet: the first look needs no exclusion.
        if operation.try_complete():
            return True
        if operation.delay_ms <= 0 or not self._park(operation, keys):
            operation.expire()
            return True
        try:
            operation.check()
        except Exception:
            self._failed(operation)
        return operation.completed

    def check_and_complete(
        self, key: Hashable, has_to_look: Callable[[DelayedOperation], bool] = _every
    ) -> int:
        """Let all that waits under `key` look again, but for those that need not by `has_to_look`,
        which is asked right before; how many operations this call ended."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        ended = 0
        # One C call copies the keys, so no lock. An operation added after it looks for itself.
        for operation in list(watchers):
            try:
                if has_to_look(operation) and operation.check():
                    ended += 1
            except Exception:
                self._failed(operation)
        return ended

    def close(self) -> int:
        """End everything parked and park nothing from now on; how many operations were ended.

        Each gets the answer that its timeout would give.
        """
        with self._lock:
            self._closed = True
            operations = {op: None for watchers in self._watchers.values() for op in watchers}
        ended = 0
        for operation in operations:
            try:
                ended += operation.expire()
            except Exception:
                self._failed(operation)
        return ended

    @property
    def delayed(self) -> int:
        """Operations parked now."""
        return self._parked_total - self._ended_total

    def is_watched(self, key: Hashable) -> bool:
        """Whether an operation waits under the key."""
        return key in self._watchers

    @property
    def watched(self) -> int:
        """Entries under keys now; an operation counts once for each of its keys."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    def statistics(self) -> dict[str, int]:
        with self._lock:
            return {
                "delayed": self._parked_total - self._ended_total,
                "watched": sum(map(len, self._watchers.values())),
                "keys": len(self._watchers),
                "parked_total": self._parked_total,
                "expired_total": self._expired_total,
                "failed_total": self._failed_total,
            }

    def forget(self, operation: DelayedOperation) -> None:
        """Take an ended operation out; for `DelayedOperation.force_complete` alone."""
        all_watchers = self._watchers
        self._lock.acquire()
        try:
            if not operation.parked:
                return  # it ended while it was being parked: `_park` saw that, or will
            operation.parked = False
            self._ended_total += 1
            self._timer.cancel_locked(operation)
            for key in operation.keys:
                watchers = all_watchers.get(key)
                if watchers is None:
                    continue  # a key given twice
                if len(watchers) > 1:
                    watchers.pop(operation, None)
                elif operation in watchers:
                    del all_watchers[key]
        finally:
            self._lock.release()

    def count_expired(self) -> None:
        """For `DelayedOperation.run` alone."""
        with self._lock:
            self._expired_total += 1

    def _park(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Enter the operation under its keys and in the timer; False when closed."""
        if not keys:
            raise ValueError(f"purgatory {self.name}: an operation without a key: {operation!r}")
        all_watchers = self._watchers
        tick = self._timer.tick_after(operation.delay_ms)
        self._lock.acquire()
        try:
            if self._closed or self._timer.thread.dead:
                return False
            operation.purgatory = self
            if operation.completed:
                return True  # from outside, and its `forget` may have been before this
            self._timer.add_locked(operation, tick)
            operation.keys = keys
            operation.parked = True
            self._parked_total += 1
            for key in keys:
                watchers = all_watchers.get(key)
                if watchers is None:
                    all_watchers[key] = {operation: None}
                else:
                    watchers[operation] = None
        finally:
            self._lock.release()
        return True

    def _failed(self, operation: DelayedOperation) -> None:
        with self._lock:
            self._failed_total += 1
        self._timer.thread.failures.note(
            f"an operation of the purgatory {self.name}", sys.exception() or RuntimeError()
        )
