"""The four codecs of record batches in Python: the one place that imports compression libraries.

Broker side, the compiled log unpacks batches itself wherever the system has the library; this is
for what it cannot (`log.validator`) and for what packs. Everything is bounded: output beyond
`output_bytes_max` is a `CompressionError` before it has cost that memory. cramjam is imported at
its first use: the broker's start does not pay for it. Stateless; any thread; the libraries release
the GIL.

The framings are Kafka's: gzip members, Snappy in the Java library's framing (raw is read too), LZ4
frames of independent blocks, zstd frames.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from enum import IntEnum
from types import ModuleType
from typing import Final

_GZIP_ONLY: Final = 31  # zlib's way to say: the largest window, and a gzip header
_GZIP_LEVEL: Final = 6
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024


class Codec(IntEnum):
    """The numbers of a batch's attributes; `Codec[name.upper()]` is `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(ValueError):
    """The bytes are not what the codec makes, or unpack to more than was allowed."""


def compress(codec: Codec, data: bytes) -> bytes:
    """`data` as a batch of this codec holds it."""
    if codec is Codec.GZIP:
        packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_ONLY)
        return packer.compress(data) + packer.flush()
    if codec is Codec.SNAPPY:
        return _xerial(data)
    if codec is Codec.LZ4:
        # Java clients read independent blocks only.
        frame = _cramjam().lz4.Compressor(block_linked=False)
        frame.compress(data)
        return bytes(frame.finish())
    if codec is Codec.ZSTD:
        return bytes(_cramjam().zstd.compress(data))
    return data


def decompress(codec: Codec, data: bytes, output_bytes_max: int) -> bytes:
    """What was packed; CompressionError if it is damaged or longer than allowed."""
    if codec is Codec.NONE:
        return data
    try:
        if codec is Codec.GZIP:
            return _gunzip(data, output_bytes_max)
        if codec is Codec.SNAPPY:
            return _unsnappy(data, output_bytes_max)
        module = _cramjam().lz4 if codec is Codec.LZ4 else _cramjam().zstd
        return _into(module, data, output_bytes_max)
    except CompressionError:
        raise
    # cramjam has an exception of its own and one panic of its language; both are bad input here.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise CompressionError(f"not sound in {codec.name.lower()}: {error}") from error


def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


def _into(module: ModuleType, data: bytes, output_bytes_max: int) -> bytes:
    if not data:
        raise CompressionError("no bytes at all")
    # An anonymous map: pages that nothing is written to are never there.
    with mmap.mmap(-1, max(output_bytes_max, 1)) as room:
        size = module.decompress_into(data, room)
        if size > output_bytes_max:
            raise CompressionError(f"more than {output_bytes_max} bytes")
        return room[:size]


def _gunzip(data: bytes, output_bytes_max: int) -> bytes:
    out = bytearray()
    while data:
        member = zlib.decompressobj(_GZIP_ONLY)
        # One byte more than allowed tells "full" from "too long".
        out += member.decompress(data, output_bytes_max - len(out) + 1)
        if len(out) > output_bytes_max:
            raise CompressionError(f"more than {output_bytes_max} bytes")
        if not member.eof:
            raise CompressionError("a gzip member is cut off")
        data = member.unused_data
    return bytes(out)


def _xerial(data: bytes) -> bytes:
    snappy = _cramjam().snappy
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _unsnappy(data: bytes, output_bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _raw_snappy(data, output_bytes_max)
    out = bytearray()
    at = 0
    while at < len(data):
        if data.startswith(_XERIAL_MAGIC, at):
            at += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise CompressionError("a snappy block is cut off")
        out += _raw_snappy(data[at : at + size], output_bytes_max - len(out))
        at += size
    return bytes(out)


def _raw_snappy(data: bytes, output_bytes_max: int) -> bytes:
    snappy = _cramjam().snappy
    claimed = snappy.decompress_raw_len(data)
    if claimed > output_bytes_max:
        raise CompressionError(f"more than {output_bytes_max} bytes")
    return bytes(snappy.decompress_raw(data))
