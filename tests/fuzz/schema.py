"""Messages as bytes with a map of where each field lies, so that a mutation knows what it hits.

kio's dataclasses say what a message of each version holds; this writes one and notes for every
length, count, number, text and buffer of tagged fields its place in the bytes. The bytes are
compared with kio's own writer when the corpus is made, so the map cannot be wrong in silence.

The same description read the other way finds the first error code of an answer (`error_path`).
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
from collections.abc import Callable
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin

INTEGERS: Final = {
    "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H", "uint32": ">I",
    "float64": ">d", "bool": ">?", "timedelta_i32": ">i", "timedelta_i64": ">q",
    "datetime_i64": ">q", "error_code": ">h",
}  # fmt: skip


class Spot(NamedTuple):
    """One piece of a message. `kind` is a size in bytes ("1" to "8"), "length16", "length32",
    "count32", "varint" (a compact length or count), "tags", "text" or "uuid"."""

    begin: int
    end: int
    kind: str


class Array(NamedTuple):
    """From `begin` to `items` a count, from there to `end` so many items."""

    begin: int
    items: int
    end: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used here


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Tracer:
    """Writes a message and notes its spots."""

    def __init__(self, flexible: bool, begin: int = 0) -> None:
        self.flexible = flexible
        self.data = bytearray(begin)
        self.spots: list[Spot] = []
        self.arrays: list[Array] = []

    def _put(self, kind: str, data: bytes) -> None:
        begin = len(self.data)
        self.data += data
        self.spots.append(Spot(begin, len(self.data), kind))

    def entity(self, value: Any) -> None:
        tagged = []
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if "tag" in field.metadata:
                if item != _default(field):
                    tagged.append((field.metadata["tag"], field, item))
            else:
                self._field(field, item)
        if self.flexible:
            self._put("tags", unsigned_varint(len(tagged)))
            for tag, field, item in sorted(tagged, key=lambda entry: entry[0]):
                inner = Tracer(True)
                inner._field(field, item, nullable=False)
                self.data += unsigned_varint(tag)
                self._put("varint", unsigned_varint(len(inner.data)))
                base = len(self.data)
                self.data += inner.data
                self.spots += [Spot(s.begin + base, s.end + base, s.kind) for s in inner.spots]

    def _field(self, field: dataclasses.Field[Any], item: Any, nullable: bool = True) -> None:
        inner, optional = stripped(field.type)
        kafka_type = field.metadata.get("kafka_type")
        if get_origin(inner) is tuple:
            begin = len(self.data)
            self._count(None if item is None else len(item))
            items = len(self.data)
            for each in item or ():
                self._primitive(kafka_type, each) if kafka_type else self.entity(each)
            self.arrays.append(Array(begin, items, len(self.data), len(item or ())))
        elif kafka_type is not None:
            self._primitive(kafka_type, item)
        else:
            if optional and nullable:
                self._put("1", b"\xff" if item is None else b"\x01")
            if item is not None:
                self.entity(item)

    def _count(self, count: int | None) -> None:
        if self.flexible:
            self._put("varint", unsigned_varint(0 if count is None else count + 1))
        else:
            self._put("count32", struct.pack(">i", -1 if count is None else count))

    def _primitive(self, kafka_type: str, value: Any) -> None:
        if kafka_type in INTEGERS:
            form = INTEGERS[kafka_type]
            if isinstance(value, datetime.timedelta):
                value = round(value.total_seconds() * 1000)
            elif isinstance(value, datetime.datetime):
                value = round(value.timestamp() * 1000)
            elif value is None:
                value = -1
            self._put(str(struct.calcsize(form)), struct.pack(form, value))
        elif kafka_type == "uuid":
            self._put("uuid", bytes(16) if value is None else value.bytes)
        else:
            self._sized(kafka_type, value.encode() if isinstance(value, str) else value)

    def _sized(self, kafka_type: str, value: bytes | None) -> None:
        if self.flexible:
            self._put("varint", unsigned_varint(0 if value is None else len(value) + 1))
        elif kafka_type == "string":
            self._put("length16", struct.pack(">h", -1 if value is None else len(value)))
        else:
            self._put("length32", struct.pack(">i", -1 if value is None else len(value)))
        if value:
            self._put("text", value)


def stripped(annotation: Any) -> tuple[Any, bool]:
    """`X | None` as (X, True)."""
    args = get_args(annotation)
    if NoneType in args and get_origin(annotation) is not tuple:
        return next(a for a in args if a is not NoneType), True
    return annotation, False


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None


# --- The first error code of an answer -----------------------------------------------------------

Walk = Callable[[bytes, int, list[int]], int]


class Found(Exception):
    """Raised with the code: it ends a walk from any depth."""


def first_error(entity_class: Any) -> Callable[[bytes, int], int | None]:
    """A function of (bytes, position of the body): the first error code, or None if it has none.

    A code of 0 at the top is passed over for the first one inside; the walk ends there, because
    answers may be long and this is done for each of millions.
    """
    walk = _walk(entity_class, True)

    def find(data: bytes, at: int) -> int | None:
        seen: list[int] = []
        try:
            walk(data, at, seen)
        except Found as found:
            return int(found.args[0])
        return 0 if seen else None

    return find


def _walk(entity_class: Any, top: bool = False) -> Walk:
    flexible = entity_class.__flexible__
    steps = [
        _step(field, flexible, top)
        for field in dataclasses.fields(entity_class)
        if "tag" not in field.metadata
    ]

    def walk(data: bytes, at: int, seen: list[int]) -> int:
        for step in steps:
            at = step(data, at, seen)
        return _skip_tags(data, at) if flexible else at

    return walk


def _step(field: Any, flexible: bool, top: bool) -> Walk:
    inner, optional = stripped(field.type)
    kafka_type = field.metadata.get("kafka_type")
    if get_origin(inner) is tuple:
        item = get_args(inner)[0]
        return _array(_primitive(kafka_type, flexible) if kafka_type else _walk(item), flexible)
    if kafka_type == "error_code":
        return _code_at_the_top if top else _code
    if kafka_type:
        return _primitive(kafka_type, flexible)
    walk = _walk(inner)
    if not optional:
        return walk
    return lambda data, at, seen: at + 1 if data[at] > 127 else walk(data, at + 1, seen)


def _array(item: Walk, flexible: bool) -> Walk:
    def walk(data: bytes, at: int, seen: list[int]) -> int:
        if flexible:
            count, at = _varint(data, at)
            count -= 1
        else:
            (count,) = struct.unpack_from(">i", data, at)
            at += 4
        for _ in range(count):
            at = item(data, at, seen)
        return at

    return walk


def _code(data: bytes, at: int, seen: list[int]) -> int:
    raise Found(struct.unpack_from(">h", data, at)[0])


def _code_at_the_top(data: bytes, at: int, seen: list[int]) -> int:
    (code,) = struct.unpack_from(">h", data, at)
    if code:
        raise Found(code)
    seen.append(0)
    return at + 2


def _primitive(kafka_type: str, flexible: bool) -> Walk:
    if kafka_type in INTEGERS:
        size = struct.calcsize(INTEGERS[kafka_type])
        return lambda data, at, seen: at + size
    if kafka_type == "uuid":
        return lambda data, at, seen: at + 16
    if flexible:

        def compact(data: bytes, at: int, seen: list[int]) -> int:
            length, at = _varint(data, at)
            return at + max(length - 1, 0)

        return compact
    form, size = (">h", 2) if kafka_type == "string" else (">i", 4)

    def legacy(data: bytes, at: int, seen: list[int]) -> int:
        (length,) = struct.unpack_from(form, data, at)
        return at + size + max(int(length), 0)

    return legacy


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _skip_tags(data: bytes, at: int) -> int:
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
    return at
