"""Which partition a record goes to, as the Java client's default partitioner decides it.

A key's partition is toPositive(murmur2(key)) modulo the partition count, so that records of one key
meet in one partition whichever client wrote them. Records without a key stick to one partition for
a batch and move on to another with the next, which makes fewer and larger batches than a
round-robin.

Owner of a `StickyPartitioner`: its producer's thread.
"""

from __future__ import annotations

import random
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for begin in range(0, whole, 4):
        k = int.from_bytes(data[begin : begin + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """toPositive clears the sign bit rather than negating, as the Java client does."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """The partition of records without a key: one at random until `next_batch()`."""

    def __init__(self, chooser: random.Random | None = None) -> None:
        self._random = chooser if chooser is not None else random.Random()
        self._current = -1

    def partition(self, key: bytes | None, partition_count: int) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        if not 0 <= self._current < partition_count:
            self._current = self._random.randrange(partition_count)
        return self._current

    def next_batch(self, partition_count: int) -> None:
        """Moves on, to another partition whenever there is another one."""
        if partition_count > 1 and 0 <= self._current < partition_count:
            step = self._random.randrange(1, partition_count)
            self._current = (self._current + step) % partition_count
        else:
            self._current = -1
