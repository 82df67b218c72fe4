"""Long lists in pieces, so that a page of the console delays no request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Any, Final, TypeVar

T = TypeVar("T")

PIECE: Final = 200
# Rows that are sorted at once.
RUN: Final = 2_000

# Called after each piece: lets other threads have the GIL; may raise to end the work.
Pause = Callable[[], None]


def no_pause() -> None:
    """For commands, which have no requests to serve."""


def in_order(rows: Iterable[T], pause: Pause, key: Callable[[T], Any]) -> Iterator[T]:
    """As `sorted`: runs are sorted, each at once, and merged as far as the caller reads. Sorting
    100,000 rows at once would hold the GIL for 90 ms."""
    runs: list[list[T]] = []
    run: list[T] = []
    for row in in_pieces(rows, pause):
        run.append(row)
        if len(run) == RUN:
            run.sort(key=key)
            runs.append(run)
            run = []
    run.sort(key=key)
    return in_pieces(merge(*runs, run, key=key), pause)


def in_pieces(rows: Iterable[T], pause: Pause) -> Iterator[T]:
    """Each row, with a pause after each 200."""
    for number, row in enumerate(rows, start=1):
        yield row
        if number % PIECE == 0:
            pause()
