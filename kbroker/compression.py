"""The four codecs of record batches in Python: the one place that imports compression libraries.

Broker side, the compiled log unpacks batches itself wherever the system has the library; this is
for codecs that it cannot (`log.validator`), for clients and tools, and for packing. Everything is
bounded: output beyond `output_bytes_max` is a `CompressionError` before it has cost that memory.
cramjam is imported at its first use: the broker's start does not pay for it. Stateless; any thread;
the libraries release the GIL.

The framings are Kafka's: gzip members, Snappy in the Java library's framing (raw is read too), LZ4
frames of independent blocks of 64 KB, zstd frames. So are the levels, by the sizes of batches
in Apache Kafka 4.3.0: lz4's level 9, the default, is its fast compressor, and every other level is
the slow one with that much effort.
"""

from __future__ import annotations

import mmap
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import chain
from types import ModuleType
from typing import Final, NamedTuple

from kbroker import limits
from kbroker.protocol._unpacking import CodecError, CodecMissing, CodecTooLong, unpack

_GZIP_ONLY: Final = 31  # zlib's way to say: the largest window, and a gzip header
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
# Version 1, independent blocks of at most 64 KB, no checksums but the header's own.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_END: Final = bytes(4)
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 1 << 31  # in a block's size: its bytes are as they were
_LZ4_FAST_LEVEL: Final = 9
_LZ4_SLOW_LEVEL_MIN: Final = 2  # of the slow compressor: level 1 is the same
_ZSTD_SLICE_BYTES: Final = 64 * 1024
_LZ4_SIZE_FLAG: Final = 8  # in a frame's flags: its content's size is in the header


class Codec(IntEnum):
    """The numbers of a batch's attributes; `Codec[name.upper()]` is `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Packing(NamedTuple):
    """How records are packed. The level means something with gzip, lz4 and zstd only."""

    codec: Codec
    level: int


# By Kafka's defaults; -1 of gzip is zlib's own choice.
PACKINGS: Final = {
    codec: Packing(codec, level)
    for codec, level in zip(Codec, (0, -1, 0, _LZ4_FAST_LEVEL, 3), strict=True)
}


class CompressionError(ValueError):
    """The bytes are not what the codec makes, or `TooLongError`."""


class TooLongError(CompressionError):
    """There is more of it than was allowed."""


def unpacked_bytes_max(packed_bytes: int) -> int:
    """The most that a client's records of this size may unpack to, in C as in Python."""
    return max(limits.UNPACKED_BYTES_MIN, limits.UNPACKED_RATIO_MAX * packed_bytes)


def compress(packing: Packing | Codec, data: bytes | memoryview) -> bytes:
    """`data` as a batch of this codec holds it; a codec alone has its default level.

    A level is one that the configuration allows (`compression.gzip.level` and so on).
    """
    return b"".join(_packed(packing, [data]))


def compress_into(
    out: bytearray, packing: Packing | Codec, pieces: Iterable[bytes | memoryview], bytes_max: int
) -> None:
    """The same of input in pieces, appended to `out`; TooLongError beyond `bytes_max`.

    All pieces but the last have UNPACKED_PIECE_BYTES, which is a whole number of every block.
    """
    for packed in _packed(packing, pieces):
        if len(packed) > bytes_max - len(out):
            raise TooLongError(f"more than {bytes_max} bytes")
        out += packed


def _packed(
    packing: Packing | Codec, pieces: Iterable[bytes | memoryview]
) -> Iterator[bytes | bytearray | memoryview]:
    codec, level = PACKINGS[packing] if isinstance(packing, Codec) else packing
    if codec is Codec.GZIP:
        packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_ONLY)
        for piece in pieces:
            yield packer.compress(piece)
        yield packer.flush()
    elif codec is Codec.SNAPPY:
        yield _XERIAL_HEADER
        for piece in pieces:
            yield _xerial_blocks(piece)
    elif codec is Codec.LZ4:
        yield _LZ4_HEADER
        for piece in pieces:
            yield _lz4_blocks(piece, level)
        yield _LZ4_END
    elif codec is Codec.ZSTD:
        yield from _zstd(pieces, level)
    else:
        yield from pieces


def _zstd(pieces: Iterable[bytes | memoryview], level: int) -> Iterator[bytes]:
    zstd = _cramjam().zstd
    coming = iter(pieces)
    first = next(coming, b"")
    second = next(coming, None)
    if second is None:
        yield bytes(zstd.compress(first, level))
        return
    # One frame of many pieces takes an object, which holds the GIL: so it gets short slices.
    packer = zstd.Compressor(level)
    for piece in chain((first, second), coming):
        for start in range(0, len(piece), _ZSTD_SLICE_BYTES):
            packer.compress(piece[start : start + _ZSTD_SLICE_BYTES])
        yield bytes(packer.flush())
    yield bytes(packer.finish())


def decompress(codec: Codec, data: bytes, output_bytes_max: int | None = None) -> bytes:
    """What was packed; CompressionError if it is damaged or longer than allowed.

    None: as long as it is. For stored batches: the broker checked the length before. By the
    decoders of the broker's validator, so that what it takes can be read.
    """
    if codec is Codec.NONE:
        return data
    try:
        return unpack(data, codec, sys.maxsize if output_bytes_max is None else output_bytes_max)
    except CodecMissing:
        return decompress_in_python(codec, data, output_bytes_max)
    except CodecTooLong as error:
        raise TooLongError(str(error)) from error
    except CodecError as error:
        raise CompressionError(str(error)) from error


def decompress_in_python(codec: Codec, data: bytes, output_bytes_max: int | None = None) -> bytes:
    """The same where no compiled decoder can: a library is not there, or it copies from too far."""
    if codec is Codec.NONE:
        return data
    try:
        if output_bytes_max is None:
            return _unbounded(codec, data)
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


def _unbounded(codec: Codec, data: bytes) -> bytes:
    if codec is Codec.GZIP:
        return _gunzip(data, sys.maxsize - 1)
    if codec is Codec.SNAPPY:
        return _unsnappy(data, sys.maxsize)
    if not data:
        raise CompressionError("no bytes at all")
    module = _cramjam().lz4 if codec is Codec.LZ4 else _cramjam().zstd
    return bytes(module.decompress(data))


def _into(module: ModuleType, data: bytes, output_bytes_max: int) -> bytes:
    if not data:
        raise CompressionError("no bytes at all")
    # An anonymous map: pages that nothing is written to are never there.
    with mmap.mmap(-1, max(output_bytes_max, 1)) as room:
        size = module.decompress_into(data, room)
        if size > output_bytes_max:
            raise TooLongError(f"more than {output_bytes_max} bytes")
        return room[:size]


def _gunzip(data: bytes, output_bytes_max: int) -> bytes:
    out = bytearray()
    while data:
        member = zlib.decompressobj(_GZIP_ONLY)
        # One byte more than allowed tells "full" from "too long".
        out += member.decompress(data, output_bytes_max - len(out) + 1)
        if len(out) > output_bytes_max:
            raise TooLongError(f"more than {output_bytes_max} bytes")
        if not member.eof:
            raise CompressionError("a gzip member is cut off")
        data = member.unused_data
    return bytes(out)


def _lz4_blocks(data: bytes | memoryview, level: int) -> bytearray:
    # Java clients read independent blocks only. cramjam links them, but in an object that holds the
    # GIL: so it is asked for one block at a time.
    lz4 = _cramjam().lz4
    out = bytearray()
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        if level != _LZ4_FAST_LEVEL:
            out += _only_block(memoryview(lz4.compress(block, max(level, _LZ4_SLOW_LEVEL_MIN))))
            continue
        packed = lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            out += struct.pack("<I", len(packed))
            out += packed
        else:
            out += struct.pack("<I", len(block) | _LZ4_STORED)
            out += block
    return out


def _only_block(frame: memoryview) -> memoryview:
    """The block of a frame that has one, and its size before it; not its checksum."""
    begin = len(_LZ4_HEADER) + (8 if frame[4] & _LZ4_SIZE_FLAG else 0)
    (size,) = struct.unpack_from("<I", frame, begin)
    return frame[begin : begin + 4 + (size & ~_LZ4_STORED)]


def _xerial_blocks(data: bytes | memoryview) -> bytearray:
    snappy = _cramjam().snappy
    out = bytearray()
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return out


def _is_xerial_header(data: bytes, at: int) -> bool:
    """Its magic, and a version from 1 on, below which the Java library reads nothing."""
    begin = at + len(_XERIAL_MAGIC)
    version = int.from_bytes(data[begin : begin + 4], "big", signed=True)
    return data.startswith(_XERIAL_MAGIC, at) and version >= 1


def _unsnappy(data: bytes, output_bytes_max: int) -> bytes:
    if not _is_xerial_header(data, 0):
        return _raw_snappy(data, output_bytes_max)
    out = bytearray()
    at = 0
    while at < len(data):
        if _is_xerial_header(data, at):
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
        raise TooLongError(f"more than {output_bytes_max} bytes")
    return bytes(snappy.decompress_raw(data))
