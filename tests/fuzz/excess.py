"""Frames that are too much of something sound: counts that the bytes after them bear out.

A count that promises more than there is dies in the first comparison. Here the bytes are there: a
hundred thousand and one topics that are all zeros, one name four thousand times, a string of 32 KB.
Code after the bound of a parser, and costs that are too high, are reached by these.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from tests.fuzz.batches import Take
from tests.fuzz.corpus import Template
from tests.fuzz.schema import Array, Spot, unsigned_varint

# Items, and how often of 16: parsers have bounds at 100,000 and 1,000,000.
COUNTS: Final = (*(300,) * 5, *(3_000,) * 5, *(20_000,) * 3, 100_000, 100_001, 1_000_001)
UNITS: Final = (1, 2, 3, 4, 4, 7, 8)  # bytes an item: what an item of zeros takes differs
REPEATS: Final = (2, 3, 30, 300, 1_000, 4_000)
EXCESS_BYTES_MAX: Final = 1 << 20
REPEAT_BYTES_MAX: Final = 256 << 10


LENGTHS: Final[dict[str, Callable[[int], bytes]]] = {
    "varint": lambda size: unsigned_varint(size + 1),
    "length16": lambda size: struct.pack(">h", size),
    "length32": lambda size: struct.pack(">i", size),
}


def counted(flexible: bool, count: int) -> bytes:
    return unsigned_varint(count + 1) if flexible else struct.pack(">i", count)


def filled(template: Template, array: Array, count: int, unit: int, byte: int = 0) -> bytes:
    """An array of so many items, and nothing but one byte after its count."""
    size = min(count * unit, EXCESS_BYTES_MAX)
    return template.whole[: array.begin] + counted(template.flexible, count) + bytes([byte]) * size


def repeated(template: Template, array: Array, times: int) -> bytes:
    """The items of an array again and again, with the count that they have."""
    whole = template.whole
    items = whole[array.items : array.end]
    times = max(1, min(times, REPEAT_BYTES_MAX // max(1, len(items))))
    count = counted(template.flexible, array.count * times)
    return whole[: array.begin] + count + items * times + whole[array.end :]


def distinct(template: Template, array: Array, times: int, *, named: bool = True) -> bytes:
    """The items of an array again and again, each time under other, short names and numbers; or
    each time without a name, in the fewest bytes."""
    whole = template.whole
    spots = [s for s in template.spots if array.items <= s.begin and s.end <= array.end]
    items, number = bytearray(), 0
    while number < times and len(items) < REPEAT_BYTES_MAX:
        items += _renamed(template, array, spots, number, b"%x" % number if named else b"")
        number += 1
    count = counted(template.flexible, array.count * number)
    return whole[: array.begin] + count + items + whole[array.end :]


def nameless(template: Template, array: Array, times: int) -> bytes:
    return distinct(template, array, times, named=False)


def _renamed(
    template: Template, array: Array, spots: list[Spot], number: int, name: bytes
) -> bytes:
    out, at = bytearray(), array.items
    for spot, following in zip(spots, [*spots[1:], None], strict=True):
        out += template.whole[at : spot.begin]
        at = spot.end
        if spot.kind == "4":
            out += struct.pack(">i", number)
        elif spot.kind == "text":
            out += name
        elif following is not None and (following.kind, following.begin) == ("text", spot.end):
            out += LENGTHS[spot.kind](len(name))
        else:
            out += template.whole[spot.begin : spot.end]
    return bytes(out + template.whole[at : array.end])


def excessive(template: Template, take: Take) -> bytes:
    """One of the two, of one of the message's arrays; the message itself if it has none."""
    arrays = [array for array in template.arrays if array.count]
    if not arrays:
        return template.whole
    array = arrays[take() % len(arrays)]
    if take() % 2:
        return repeated(template, array, REPEATS[take() % len(REPEATS)])
    count = COUNTS[take() % len(COUNTS)]
    return filled(template, array, count, UNITS[take() % len(UNITS)], (0, 0, 0, 1)[take() % 4])
