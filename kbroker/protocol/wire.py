"""Reading and writing Kafka's primitive types, for the messages that kbroker encodes itself.

Codecs live beside their handlers and stand on the two classes here. No schema library is imported
by a broker (54 ms and more); the tests hold every version of every message against one.

Message versions come in two encodings (KIP-482): the legacy one with int16 string lengths and int32
array counts, and the flexible one with unsigned varints holding length + 1 and a buffer of tagged
fields after every structure. `Reader` and `Writer` are given once which one it is, so a codec
spells each field a single time for all versions.

A `Reader` works on bytes from a socket: every length is compared with the bytes left before it is
used, array counts are bounded by the bytes that remain and by one budget for the whole request,
unknown tagged fields are skipped. Whatever is wrong is a `ProtocolError`, after which the
connection is closed. Bytes after the last known field are left alone, as Apache Kafka does.

Both classes are compiled (`_wire.pyx`), belong to the thread that made them and hold no lock.
"""

from __future__ import annotations

from typing import Final

from kbroker.protocol._wire import (
    NO_TAGS,
    ProtocolError,
    Reader,
    Writer,
    encode_array_length,
    encode_string,
    encode_unsigned_varint,
)

__all__ = [
    "INT32_MIN",
    "NO_TAGS",
    "ProtocolError",
    "Reader",
    "Writer",
    "encode_array_length",
    "encode_string",
    "encode_unsigned_varint",
]

INT32_MIN: Final = -(2**31)
