"""DER, as far as names and lists of names in certificates need it.

Certificates come from clients, so every length is looked at. Source: ITU-T X.690.
Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
_LENGTH_BYTES_MAX: Final = 4
_ARCS_MAX: Final = 64


class Value(NamedTuple):
    """`whole` is with tag and length."""

    tag: int
    content: bytes
    whole: bytes


def values_of(data: bytes) -> Iterator[Value]:
    """The values that follow one another in `data`; ValueError if it is cut or not DER."""
    at = 0
    while at < len(data):
        begin = at
        tag = data[at]
        if tag & 0x1F == 0x1F or at + 2 > len(data):
            raise ValueError("a tag of several bytes, or no length")
        length, at = data[at + 1], at + 2
        if length >= 0x80:
            count = length & 0x7F
            if not 1 <= count <= _LENGTH_BYTES_MAX or at + count > len(data):
                raise ValueError("a length that is too long or cut")
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
        if length > len(data) - at:
            raise ValueError("a value that is cut")
        yield Value(tag, data[at : at + length], data[begin : at + length])
        at += length


def only_value(data: bytes, tag: int) -> bytes:
    """The content of the one value that `data` is."""
    found = list(values_of(data))
    if len(found) != 1 or found[0].tag != tag:
        raise ValueError(f"no value of type {tag:#x}, or more than one")
    return found[0].content


def dotted(content: bytes) -> str:
    """An object identifier as numbers with dots."""
    if not content or content[-1] & 0x80:
        raise ValueError("an object identifier that is cut")
    numbers, number = list[int](), 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if len(numbers) > _ARCS_MAX:
        raise ValueError("an object identifier that is too long")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
