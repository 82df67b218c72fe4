"""The four codecs of record batches, for Python code: our client and tools. The broker's hot path
stores batches as they were sent and validates them in C; it does not come here.

This is the one file that imports cramjam, and only when a codec other than NONE is used.

What clients write differs, and both forms must be read:
- gzip: a gzip member.
- snappy: Java frames it (xerial: a magic of 8 bytes, two versions, then length + raw block each);
  librdkafka sends one raw block. We write the framed form, which every client reads.
- lz4: an LZ4 frame. Java refuses frames whose blocks depend on each other, and cramjam writes just
  those, so the frame around its blocks is ours: 64 KiB blocks, independent, no checksums.
- zstd: a zstd frame.

A few compressed bytes may claim to be gigabytes, so nothing is decompressed without a limit: the
output buffer starts small and doubles up to it. Pure functions; any thread may call.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from kbroker.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from types import ModuleType


class Codec(IntEnum):
    """The codec bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# What one batch may become: above any message.max.bytes in use, below what hurts.
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
_FIRST_OUTPUT_BYTES: Final = 64 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

# Magic, flags 0x60 (version 1, independent blocks), block size 0x40 (64 KiB), and the second byte
# of the xxHash-32 over those two.
_LZ4_HEADER: Final = bytes.fromhex("04224d18 6040 82")
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000


def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


def compress(codec: Codec, data: bytes) -> bytes:
    if codec is Codec.NONE:
        return data
    if codec is Codec.GZIP:
        return bytes(_cramjam().gzip.compress(data))
    if codec is Codec.ZSTD:
        return bytes(_cramjam().zstd.compress(data))
    return _snappy_compress(data) if codec is Codec.SNAPPY else _lz4_compress(data)


def decompress(codec: Codec, data: bytes, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The bytes behind `data`; `ProtocolError` if it is broken or larger than `limit_bytes`."""
    if codec is Codec.NONE:
        return data
    if codec is Codec.SNAPPY:
        return _snappy_decompress(data, limit_bytes)
    module = getattr(_cramjam(), codec.name.lower())
    return _decompress_into(module.decompress_into, data, limit_bytes)


def _decompress_into(decompress_into: Any, data: bytes, limit_bytes: int) -> bytes:
    """Grows the output until it fits: the library reports a full buffer like any other error."""
    failure = _cramjam().DecompressionError
    size = min(limit_bytes, max(_FIRST_OUTPUT_BYTES, 4 * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except failure as error:
            if "whole buffer" not in str(error) or size >= limit_bytes:
                raise ProtocolError(f"compressed records: {error}") from error
            size = min(limit_bytes, size * 4)
            continue
        del output[written:]
        return bytes(output)


def _snappy_compress(data: bytes) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    parts = [_XERIAL_HEADER]
    for begin in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(compress_raw(data[begin : begin + _XERIAL_BLOCK_BYTES]))
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: bytes, limit_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit_bytes)
    parts: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < 4:
            raise ProtocolError("snappy: a block's length is cut off")
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or size > len(data) - position:
            raise ProtocolError(f"snappy: a block of {size} bytes, {len(data) - position} left")
        part = _snappy_block(data[position : position + size], limit_bytes)
        limit_bytes -= len(part)
        parts.append(part)
        position += size
    return b"".join(parts)


def _snappy_block(block: bytes, limit_bytes: int) -> bytes:
    snappy = _cramjam().snappy
    try:
        size = snappy.decompress_raw_len(block)
        if size > limit_bytes:
            raise ProtocolError(f"snappy: a block claims {size} bytes")
        return bytes(snappy.decompress_raw(block))
    except _cramjam().DecompressionError as error:
        raise ProtocolError(f"compressed records: {error}") from error


def _lz4_compress(data: bytes) -> bytes:
    compress_block = _cramjam().lz4.compress_block
    parts = [_LZ4_HEADER]
    for begin in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[begin : begin + _LZ4_BLOCK_BYTES]
        block = bytes(compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts.append(struct.pack("<I", len(block)))
            parts.append(block)
        else:
            parts.append(struct.pack("<I", len(plain) | _LZ4_STORED))
            parts.append(plain)
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)
