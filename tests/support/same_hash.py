"""Names that a hash without a key puts into one place: what a hostile client would send.

FNV-1a reads byte after byte, so two pieces that lead from one state to the same next one can stand
for each other. A dozen of such pairs, each found by trying some hundred thousand pieces, make
thousands of names with one and the same hash of 32 bits.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final

_PAIRS: Final = (
    ("bgpvu", "b13ea"), ("ajpfs", "a2vja"), ("amtzx", "a31cd"), *[("aotzx", "a11cd")] * 9,
)  # fmt: skip


def fnv1a(name: str) -> int:
    mixed = 2166136261
    for byte in name.encode():
        mixed = ((mixed ^ byte) * 16777619) & 0xFFFF_FFFF
    return mixed


def names_of_one_hash() -> list[str]:
    """4,096 names of the same length and the same FNV-1a."""
    names = ["".join(pieces) for pieces in itertools.product(*_PAIRS)]
    assert len({fnv1a(name) for name in names[::100]}) == 1
    return names


def names_of_many_hashes() -> list[str]:
    """As many, as long, which nobody has chosen."""
    length = sum(len(one) for one, _ in _PAIRS)
    return [f"{number:0{length}}" for number in range(1 << len(_PAIRS))]


def times_dearer(work: Callable[[list[str]], object]) -> float:
    """CPU of the work for names of one hash, beside as many others; the least of some rounds."""
    chosen, others = names_of_one_hash(), names_of_many_hashes()
    return min(_cpu_s(work, chosen) for _ in range(3)) / min(_cpu_s(work, others) for _ in range(3))


def _cpu_s(work: Callable[[list[str]], object], names: list[str]) -> float:
    before = time.process_time()
    work(names)
    return time.process_time() - before
