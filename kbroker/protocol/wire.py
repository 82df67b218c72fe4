"""Reading and writing Kafka's primitive types, for the messages that kbroker encodes itself.

A client's first second is ApiVersions, Metadata, InitProducerId, FindCoordinator and ListOffsets.
Those codecs live beside their handlers and stand on the two classes here, so that a fresh broker
answers them without importing the schema library (54 ms and more). Everything rarer goes through
`cold.py`.

Message versions come in two encodings (KIP-482): the legacy one with int16 string lengths and int32
array counts, and the flexible one with unsigned varints holding length + 1 and a buffer of tagged
fields behind every structure. `Reader` and `Writer` are told once which one it is, so a codec
spells each field a single time for all versions.

A `Reader` works on bytes from a socket: every length is compared with what is left before it is
used, array counts are bounded by the bytes that remain and by one budget for the whole request,
unknown tagged fields are skipped. Whatever is wrong is a `ProtocolError`, after which the
connection is closed. Bytes behind the last known field are left alone, as Apache Kafka does.

Both classes belong to the thread that made them and hold no lock.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kbroker import limits
from kbroker.outside_text import untellable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UINT16: Final = struct.Struct(">H")
_UINT32: Final = struct.Struct(">I")
_FLOAT64: Final = struct.Struct(">d")
_NO_ID: Final = bytes(16)
# What the older encoding can say; Apache Kafka refuses longer ones in the flexible one, too.
_STRING_BYTES_MAX: Final = limits.TEXT_BYTES_MAX

INT32_MIN: Final = -(2**31)
NO_TAGS: Final[Mapping[int, Callable[[Reader], None]]] = MappingProxyType({})


class ProtocolError(Exception):
    """Bytes that are no message of the announced API and version; ends the connection."""


class Reader:
    """A cursor over the body of one request."""

    __slots__ = ("_data", "_end", "_flexible", "_items_left", "_position")

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self._data = data
        self._position = 0
        self._end = len(data)
        self._flexible = flexible
        # One budget for all arrays, so that a frame of 100 MB cannot become gigabytes of objects.
        self._items_left = limits.ARRAY_ITEMS_MAX

    @property
    def left(self) -> int:
        """Bytes that have not been read."""
        return self._end - self._position

    def _take(self, size: int) -> int:
        """Step over `size` bytes and return where they begin."""
        begin = self._position
        if size < 0 or size > self._end - begin:
            raise ProtocolError(f"{size} bytes wanted, {self._end - begin} left")
        self._position = begin + size
        return begin

    def int8(self) -> int:
        value = self._data[self._take(1)]
        return value - 256 if value > 127 else value

    def boolean(self) -> bool:
        return self._data[self._take(1)] != 0

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self._data, self._take(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self._data, self._take(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack_from(self._data, self._take(8))[0]
        return value

    def uint16(self) -> int:
        value: int = _UINT16.unpack_from(self._data, self._take(2))[0]
        return value

    def uint32(self) -> int:
        value: int = _UINT32.unpack_from(self._data, self._take(4))[0]
        return value

    def float64(self) -> float:
        value: float = _FLOAT64.unpack_from(self._data, self._take(8))[0]
        return value

    def uuid(self) -> UUID | None:
        """A topic id; the zero id, which means "none", is None."""
        begin = self._take(16)
        raw = bytes(self._data[begin : begin + 16])
        return None if raw == _NO_ID else UUID(bytes=raw)

    def unsigned_varint(self) -> int:
        value = 0
        for index in range(limits.VARINT32_BYTES_MAX):
            byte = self._data[self._take(1)]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value > 0xFFFF_FFFF:
                    break
                return value
        raise ProtocolError("a varint of more than 32 bits")

    def nullable_string(self) -> str | None:
        size = self.unsigned_varint() - 1 if self._flexible else self.int16()
        if size < 0:
            return None
        if size > _STRING_BYTES_MAX:
            raise ProtocolError(f"a string of {size} bytes")
        begin = self._take(size)
        # What is no UTF-8 is some other name, as in Apache Kafka, and mostly one that cannot be.
        return self._data[begin : begin + size].decode(errors="replace")

    def nullable_bytes(self) -> bytes | None:
        size = self.unsigned_varint() - 1 if self._flexible else self.int32()
        if size < 0:
            return None
        begin = self._take(size)
        return bytes(self._data[begin : begin + size])

    def required_bytes(self) -> bytes:
        value = self.nullable_bytes()
        if value is None:
            raise ProtocolError("null for bytes that may not be null")
        return value

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ProtocolError("null for a string that may not be null")
        return value

    def nullable_array(self) -> int | None:
        """The number of items that follow, or None for a null array."""
        count = self.unsigned_varint() - 1 if self._flexible else self.int32()
        if count < 0:
            return None
        # No item takes less than a byte, so a larger count cannot be true.
        if count > self.left or count > self._items_left:
            raise ProtocolError(f"an array of {count} items in {self.left} bytes")
        self._items_left -= count
        return count

    def array(self) -> int:
        count = self.nullable_array()
        if count is None:
            raise ProtocolError("null for an array that may not be null")
        return count

    def raw(self, size: int) -> bytes:
        """Bytes for somebody else to read."""
        begin = self._take(size)
        return bytes(self._data[begin : begin + size])

    def tags(self, known: Mapping[int, Callable[[Reader], None]] = NO_TAGS) -> None:
        """The tagged fields that end a structure: known ones are read, the others stepped over."""
        if not self._flexible:
            return
        count = self.unsigned_varint()
        if count > limits.TAGGED_FIELDS_MAX:
            raise ProtocolError(f"{count} tagged fields")
        for _ in range(count):
            tag = self.unsigned_varint()
            size = self.unsigned_varint()
            begin = self._take(size)
            read = known.get(tag)
            if read is not None:
                read(Reader(self._data[begin : begin + size], flexible=True))


class Writer:
    """The body of one answer, grown field by field."""

    __slots__ = ("_data", "_flexible")

    def __init__(self, *, flexible: bool) -> None:
        self._data = bytearray()
        self._flexible = flexible

    def getvalue(self) -> bytes:
        return bytes(self._data)

    def raw(self, data: bytes) -> None:
        """Bytes that are encoded already."""
        self._data += data

    def int8(self, value: int) -> None:
        self._data.append(value & 0xFF)

    def boolean(self, value: bool) -> None:
        self._data.append(1 if value else 0)

    def int16(self, value: int) -> None:
        self._data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._data += _INT64.pack(value)

    def uuid(self, value: UUID | None) -> None:
        self._data += _NO_ID if value is None else value.bytes

    def string(self, value: str | None) -> None:
        self._data += encode_string(value, flexible=self._flexible)

    def bytes(self, value: bytes) -> None:
        self._data += encode_array_length(len(value), flexible=self._flexible)
        self._data += value

    def array(self, count: int | None) -> None:
        self._data += encode_array_length(count, flexible=self._flexible)

    def tags(self) -> None:
        """The end of a structure without tagged fields."""
        if self._flexible:
            self._data.append(0)


def encode_unsigned_varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    if value < 0 or value > 0xFFFF_FFFF:
        raise ValueError(f"{value} is no unsigned 32-bit number")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_string(value: str | None, *, flexible: bool) -> bytes:
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    raw = value.encode(errors="replace")
    if len(raw) > _STRING_BYTES_MAX:
        raise untellable(len(raw))
    if flexible:
        return encode_unsigned_varint(len(raw) + 1) + raw
    return _INT16.pack(len(raw)) + raw


def encode_array_length(count: int | None, *, flexible: bool) -> bytes:
    if count is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    return encode_unsigned_varint(count + 1) if flexible else _INT32.pack(count)
