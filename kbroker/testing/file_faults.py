"""Makes file operations of the log fail, one by one: what a disk does on its worst day.

    with FileFaults(Fault(("write",), "words-0", nth=3, error=errno.ENOSPC)) as faults:
        ...                                  # the third write below words-0 finds no space
    with FileFaults() as faults:
        ...
    faults.seen                              # what was done to which file, in order

Every operation of the log in this process passes through here meanwhile, those of its C units and
those of its Python, under one numbering: a test runs something once to count, and then once more
for each number. One `FileFaults` at a time; enter and leave it while nothing else works on a log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple

from kbroker.log.engine import file_operations
from kbroker.testing import _file_faults

OPERATIONS: Final = _file_faults.OPERATIONS
FOREVER: Final = 1 << 62


@dataclass(frozen=True)
class Fault:
    """The `nth` operation that fits, and `times - 1` after it: an error, few bytes, slow, or
    hanging until `FileFaults.let_go`."""

    operations: tuple[str, ...] = ()  # none: any of the log; "send": of the network
    path_part: str = ""
    nth: int = 1
    times: int = 1
    error: int = 0  # an errno
    bytes_max: int = -1  # of a read or a write; in Python a write is out of space after them
    delay_ms: float = 0
    hangs: bool = False


class Seen(NamedTuple):
    """One operation: its name, the file, whether a fault touched it, the bytes it asked for."""

    operation: str
    path: str
    failed: bool
    length: int


class FileFaults:
    """A context in which the log's file operations are noted, and fail as asked.

    `before` is called with the name and the path of each operation, just before it, on the thread
    that asks for it: where only one thread works on the log. Its error is raised by the block.
    """

    def __init__(
        self,
        *faults: Fault,
        before: Callable[[str, str], object] | None = None,
        only_hang: bool = False,
    ) -> None:
        """`only_hang`: nothing is noted, in a process that goes on for long."""
        self._only_hang = only_hang
        self._faults = faults
        self._before = before
        self.seen: list[Seen] = []

    def __enter__(self) -> FileFaults:
        _file_faults.watch(self._before)
        if self._only_hang:
            _file_faults.hang_only()
        _file_faults.install()
        file_operations.hook = _file_faults.ask
        for fault in self._faults:
            self.add(fault)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.seen = self.look()
        file_operations.hook = None
        failed = _file_faults.remove()
        if failed is not None and error is None:
            raise failed

    def add(self, fault: Fault) -> None:
        """One more; the first that fits an operation decides. It counts from now on."""
        _file_faults.add_rule(
            fault.operations, fault.path_part, fault.nth - 1, fault.times, fault.error,
            fault.bytes_max, int(fault.delay_ms * 1000), fault.hangs,
        )  # fmt: skip

    @property
    def hung(self) -> int:
        """Operations that hang now."""
        return _file_faults.hung()

    def let_go(self) -> int:
        """What hangs goes on, and nothing hangs any more; how many operations did."""
        return _file_faults.let_go()

    def look(self) -> list[Seen]:
        """What has been done so far."""
        return [Seen(*each) for each in _file_faults.noted()]
