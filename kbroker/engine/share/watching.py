"""The log of a share-partition, watched for the fetches that wait for it: one watch for all.

A fetch that finds nothing has the log watched from the offset where it has looked, for a number of
bytes. The watch with the fewest bytes serves all: when it ends the fetches look again, and one that
wants more has the log watched again. A watch that ends as soon as it is made, since the log is not
as the read has found it, leads to a look a little later, and one such look is to come at a time.

Any thread. `lock` is a leaf: the hot path and the timer are called without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from kbroker.errors import ErrorCode
from kbroker.purgatory.timer import CallLater

# How long the hot path is asked at once to say that there are new records.
_WATCH_MS: Final = 60_000
_LOOK_AGAIN_MS: Final = 20


class Watch(Protocol):
    """A wait for records."""

    def cancel(self) -> bool:
        """False where it has ended: then `done` is called, or was."""
        ...


# (log, offset, whether up to the last stable offset, bytes, ms, done): `done` is called once, when
# the log has so many bytes from the offset on, or the partition is not as it was; on a handler, or
# at once.
AwaitRecords = Callable[[Any, int, bool, int, int, Callable[[ErrorCode], object]], Watch]


class _Watched:
    __slots__ = ("count_bytes", "made", "offset")

    def __init__(self, offset: int, count_bytes: int) -> None:
        self.offset: Final = offset
        self.count_bytes: Final = count_bytes
        self.made: Watch | None = None  # None: it is being made


class LogWatcher:
    """See the module. `wake` raises nothing."""

    __slots__ = (
        "_await_records", "_call_later", "_is_closed", "_lock", "_log", "_looks_later", "_wake",
        "_watched",
    )  # fmt: skip

    def __init__(
        self,
        log: Any,
        await_records: AwaitRecords,
        call_later: CallLater,
        wake: Callable[[], object],
    ) -> None:
        self._log: Final = log
        self._await_records: Final = await_records
        self._call_later: Final = call_later
        self._wake: Final = wake
        self._lock = threading.Lock()
        self._watched: _Watched | None = None
        self._looks_later = False
        self._is_closed = False

    def watch(self, offset: int, is_committed: bool, count_bytes: int) -> None:
        """Wake when the log has so many bytes from the offset on, or sooner."""
        mine = _Watched(offset, count_bytes)
        with self._lock:
            before = self._watched
            if self._is_closed or (
                before is not None and before.offset == offset and before.count_bytes <= count_bytes
            ):
                return
            self._watched = mine
        is_inside = True  # it may end before it is made

        def ended(_: ErrorCode) -> None:
            with self._lock:
                if self._watched is not mine:
                    return  # another one has its place
                self._watched = None
            self._look_later() if is_inside else self._wake()

        try:
            _cancel(before)
            made = self._await_records(
                self._log, offset, is_committed, count_bytes, _WATCH_MS, ended
            )
        except BaseException:
            with self._lock:
                if self._watched is mine:
                    self._watched = None
            raise
        is_inside = False
        with self._lock:
            mine.made = made
            is_needed = self._watched is mine
        if not is_needed:
            _cancel(mine)

    def watches(self, offset: int) -> bool:
        """Whether the first byte from there on leads to a look."""
        watched = self._watched
        return watched is not None and watched.offset == offset and watched.count_bytes <= 1

    def stop(self) -> None:
        """No fetch waits any more."""
        with self._lock:
            before, self._watched = self._watched, None
        _cancel(before)

    def close(self) -> None:
        """The log is watched no more."""
        self._is_closed = True
        self.stop()

    def _look_later(self) -> None:
        with self._lock:
            if self._looks_later:
                return
            self._looks_later = True
        try:
            self._call_later(_LOOK_AGAIN_MS, self._look)
        except BaseException:
            self._looks_later = False
            raise

    def _look(self) -> None:
        self._looks_later = False
        self._wake()


def _cancel(watched: _Watched | None) -> None:
    if watched is not None and watched.made is not None:
        watched.made.cancel()
