"""Long lists in pieces, so that a page of the console delays no request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

PIECE: Final = 200

# Called after each piece: lets other threads have the GIL; may raise to end the work.
Pause = Callable[[], None]


def no_pause() -> None:
    """For commands, which have no requests to serve."""


def in_pieces(rows: Iterable[T], pause: Pause) -> Iterator[T]:
    """Each row, with a pause after each 200."""
    for number, row in enumerate(rows, start=1):
        yield row
        if number % PIECE == 0:
            pause()
