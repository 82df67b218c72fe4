"""The hashes by which a group sees that a topic has changed, as Apache Kafka 4.1 and later have it.

A group's record keeps the hash of its topics, so a coordinator that loads the group knows whether a
topic was made, deleted or has grown since, or whether its racks are others. Both brokers must find
the same number, or each move of a group between them would be a rebalance.

    topic    XXH3-64 of: byte 0; the id's halves; text: the name; the number of partitions; for each
             partition its number and, sorted, of each rack of its replicas: its length, text: it
    group    XXH3-64 of the hashes of those topics that exist, in the order of their names

Integers are little-endian (the id's halves and hashes have 8 bytes, the others 4); a text is its
UTF-16 code units and then their number. Without topics a group's hash is 0. Pure functions; any
thread.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from kbroker.core._xxh3 import xxh3_64

NO_TOPICS: Final = 0

_MAGIC: Final = b"\0"
_INT32: Final = struct.Struct("<i")
_ID: Final = struct.Struct("<QQ")
_HALF_BITS: Final = 64


def topic_hash(
    topic_id: UUID, name: str, partition_count: int, racks: Sequence[Sequence[str]] = ()
) -> int:
    """`racks`: of each partition the racks of its replicas; empty where no broker has one."""
    high, low = divmod(topic_id.int, 1 << _HALF_BITS)
    parts = [_MAGIC, _ID.pack(high, low), _text(name), _INT32.pack(partition_count)]
    if any(racks):
        for number in range(partition_count):
            parts.append(_INT32.pack(number))
            for rack in sorted(racks[number], key=_big_endian_units):
                parts.append(_INT32.pack(len(_big_endian_units(rack)) // 2))
                parts.append(_text(rack))
    else:
        parts.append(_numbers(partition_count))
    return xxh3_64(b"".join(parts))


def group_hash(hashes: Mapping[str, int]) -> int:
    """Of the topics that exist: the hash of each by its name."""
    if not hashes:
        return NO_TOPICS
    in_order = [hashes[name] for name in sorted(hashes)]
    return xxh3_64(struct.pack(f"<{len(in_order)}q", *in_order))


def _big_endian_units(text: str) -> bytes:
    """Sorts as Java sorts texts."""
    return text.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT32.pack(len(units) // 2)


def _numbers(count: int) -> bytes:
    numbers = array("i", range(count))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
