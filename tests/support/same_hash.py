"""Names and ids that a hash without a key puts into one place: what a hostile client would send.

FNV-1a reads byte after byte, so two pieces that lead from one state to the same next one can stand
for each other. A dozen of such pairs, each found by trying some hundred thousand pieces, make
thousands of names with one and the same hash of 32 bits. A multiplication by an odd number can be
undone, so ids are chosen by their product.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final, TypeVar

Chosen = TypeVar("Chosen")
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
    """As many, as long, chosen at random."""
    length = sum(len(one) for one, _ in _PAIRS)
    return [f"{number:0{length}}" for number in range(1 << len(_PAIRS))]


def ids_of_one_hash(count: int) -> list[int]:
    """Positive numbers of 64 bits whose product with the golden ratio is below 2**32."""
    undone = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    every = ((undone * product) % (1 << 64) for product in itertools.count(1))
    return list(itertools.islice((one for one in every if one < 1 << 63), count))


def times_dearer(work: Callable[[list[str]], object]) -> float:
    """CPU of the work for names of one hash, beside as many others."""
    return cpu_ratio(work, names_of_one_hash(), names_of_many_hashes())


def cpu_ratio(work: Callable[[Chosen], object], one: Chosen, other: Chosen) -> float:
    """CPU of the work for the one, beside the other; the least of some rounds."""
    return min(_cpu_s(work, one) for _ in range(3)) / min(_cpu_s(work, other) for _ in range(3))


def _cpu_s(work: Callable[[Chosen], object], of: Chosen) -> float:
    before = time.process_time()
    work(of)
    return time.process_time() - before
