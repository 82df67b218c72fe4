"""A disk that hangs, under the log's file operations of this process: one that does not return.
Its files are not in the page cache either: a read that may not wait for it gets an error.

with standing(("read", "0.index")) as disk:
    looking = disk.begin(lambda: log.read(20))   # on another thread; it hangs
    disk.soon(lambda: log.append(batch))         # waits for no hanging operation, or fails
    disk.go_on()
    looking.result()
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kbroker.testing.file_faults import FOREVER, Fault, FileFaults, Seen

T = TypeVar("T")

DEADLINE_S: Final = 60.0
SOON_S: Final = 10.0
NOT_WAITING: Final = ("open_now", "read_now")


@dataclass(frozen=True)
class _Place:
    """The first operation of a kind on a file that ends so."""

    operation: str
    ending: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    hangs: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def comes_by(self, operation: str, path: str) -> None:
        if operation != self.operation or not path.endswith(self.ending):
            return
        with self.lock:
            if self.hangs.is_set():
                return
            self.hangs.set()
        self.goes_on.wait(DEADLINE_S)


class StandingDisk:
    """See the head of this file; places are counted as they were named."""

    def __init__(self, places: list[_Place], pool: ThreadPoolExecutor) -> None:
        self._places: Final = places
        self._pool: Final = pool
        cold = [
            Fault(NOT_WAITING, place.ending, times=FOREVER, error=errno.EAGAIN) for place in places
        ]
        self._faults: Final = FileFaults(*cold, before=self._before)

    def _before(self, operation: str, path: str) -> None:
        for place in self._places:
            place.comes_by(operation, path)

    def begin(self, call: Callable[[], T], at: int = 0) -> Future[T]:
        """On another thread; on return it hangs there."""
        future = self._pool.submit(call)
        self.wait(at)
        return future

    def wait(self, at: int = 0) -> None:
        """Until an operation hangs there."""
        assert self._places[at].hangs.wait(DEADLINE_S), "no operation hangs there"

    def hangs(self, at: int = 0) -> bool:
        """Whether an operation has come there, and hangs or has hung."""
        return self._places[at].hangs.is_set()

    def soon(self, call: Callable[[], T]) -> T:
        """A call's answer, on another thread; fails where that waits for a hanging operation."""
        return self._pool.submit(call).result(SOON_S)

    def go_on(self, at: int = 0) -> None:
        self._places[at].goes_on.set()

    def seen(self) -> list[Seen]:
        return self._faults.look()

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._faults:
            try:
                yield
            finally:
                for at in range(len(self._places)):
                    self.go_on(at)
                self._pool.shutdown()


@contextmanager
def standing(*places: tuple[str, str]) -> Iterator[StandingDisk]:
    """Operations, each with the end of a file's path. All go on with the end of the block."""
    disk = StandingDisk([_Place(*place) for place in places], ThreadPoolExecutor())
    with disk.running():
        yield disk
