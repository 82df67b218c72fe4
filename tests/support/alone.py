"""Tests marked `alone`: while one of them runs, no other process of the run is inside a test.

Their bounds are of time, and of a machine that the rest of the run keeps busy they would say
nothing. Every test of a process of pytest-xdist holds one lock, which many may hold at a time; one
that is `alone` holds it by itself. One that waits for it has taken the door before, so that the
others do not go in one after the other meanwhile.

The locks are the kernel's, by process: they are gone with their process, and no child inherits one.
How slow the machine is, for a bound that a slower one may have more of: `slowness` for bounds in
CPU time, `delay` for those by the clock.
"""

from __future__ import annotations

import fcntl
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_DOOR, _ROOM = 0, 1  # bytes of the file that the locks are of
# The time of `_work` where the bounds were set: two virtual CPUs of 2026, otherwise idle.
_REFERENCE_MS: Final = 20.0
_WORK: Final = 100_000


class Room:
    """What the processes of one run share: a file of theirs."""

    def __init__(self, run: str) -> None:
        self._path = Path(tempfile.gettempdir(), f"kbroker-tests-{run}.lock")
        self._file = self._path.open("a+b")

    @contextmanager
    def inside(self, alone: bool) -> Iterator[None]:
        with self._held(_DOOR, fcntl.LOCK_EX):
            self._take(_ROOM, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._take(_ROOM, fcntl.LOCK_UN)

    @contextmanager
    def _held(self, byte: int, kind: int) -> Iterator[None]:
        self._take(byte, kind)
        try:
            yield
        finally:
            self._take(byte, fcntl.LOCK_UN)

    def _take(self, byte: int, kind: int) -> None:
        fcntl.lockf(self._file, kind, 1, byte)

    def close(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)  # the others have it open, or are gone


def slowness() -> float:
    """How many times more CPU time than the reference the same takes on this machine now."""
    return _times(time.thread_time)


def delay() -> float:
    """How many times longer than the reference it takes, waiting for a processor included."""
    return _times(time.perf_counter)


def _times(clock: Callable[[], float]) -> float:
    return max(1.0, statistics.median(_work(clock) for _ in range(9)) / _REFERENCE_MS)


def _work(clock: Callable[[], float]) -> float:
    """For the work of an interpreter in a request: calls, numbers, objects. In ms."""
    began = clock()
    unpack, data = struct.Struct(">h").unpack_from, bytes(2)
    found = [(unpack(data, 0)[0], str(number)) for number in range(_WORK)]
    if len(found) != _WORK:
        raise AssertionError("a list without its items")
    return (clock() - began) * 1e3
