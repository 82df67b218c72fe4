"""Warming a broker by transactions: until three successive blocks take the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

BLOCKS, BLOCKS_MAX, FLAT = 3, 30, 0.05
_WORDS: Final = {True: "flat", False: "NOT FLAT"}


class Warmed(NamedTuple):
    """`word`: whether the last blocks took the same time."""

    blocks: int
    word: str


def until_flat(block: Callable[[], float]) -> Warmed:
    """`block` does the work once more and says how long one piece of it took."""
    times: list[float] = []
    while len(times) < BLOCKS_MAX and not _is_flat(times):
        times.append(block())
    return Warmed(len(times), _WORDS[_is_flat(times)])


def _is_flat(times: Sequence[float]) -> bool:
    last = times[-BLOCKS:]
    return len(last) == BLOCKS and max(last) <= min(last) * (1 + FLAT)
