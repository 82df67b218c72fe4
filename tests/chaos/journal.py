"""What a process of the chaos run has done, line by line.

    <ns> <kind> <words...>

`ns` is the monotonic clock, which all processes of the machine share. A line is one write to a file
in append mode, so what was written before a SIGKILL stays; a last line without its end is left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

STARTED: Final = "started"  # client, protocol, instance or -
ASSIGNED: Final = "assigned"  # partitions
REVOKED: Final = "revoked"  # partitions, given back in order
LOST: Final = "lost"  # partitions, of a membership that is over
DONE: Final = "done"  # partition, first offset, last offset: processed
COMMITTED: Final = "committed"  # partition:offset..., as the broker has answered
REFUSED: Final = "refused"  # the error's name: a commit that was not taken
PRODUCED: Final = "produced"  # partition, offset: as the broker has answered
ENDED: Final = "ended"  # in order


class Line(NamedTuple):
    ns: int
    kind: str
    words: tuple[str, ...]


class Journal:
    """One process's file. Not for threads."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: str, *words: object) -> None:
        self.write_many([(kind, *words)])

    def write_many(self, lines: Iterable[tuple[object, ...]]) -> None:
        """Several lines of the same moment, in one write."""
        now = time.monotonic_ns()
        text = "".join(f"{now} {' '.join(map(str, words))}\n" for words in lines)
        os.write(self._fd, text.encode())

    def done(self, batches: Iterable[tuple[int, Iterable[int]]]) -> None:
        """Offsets processed, by partition; runs without a hole become one line."""
        self.write_many(
            (DONE, partition, first, last)
            for partition, offsets in batches
            for first, last in runs(offsets)
        )

    def close(self) -> None:
        os.close(self._fd)


def runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of consecutive numbers."""
    first = last = None
    for offset in offsets:
        if last is not None and offset == last + 1:
            last = offset
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = offset
    if first is not None and last is not None:
        yield first, last


def read(path: Path) -> Iterator[Line]:
    with open(path, encoding="utf-8") as file:
        for text in file:
            if not text.endswith("\n"):
                return
            ns, kind, *words = text.split()
            yield Line(int(ns), kind, tuple(words))
