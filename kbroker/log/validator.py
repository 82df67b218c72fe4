"""Batches that the compiled log cannot open: unpacked here, walked there.

A machine may lack a codec's library, and a Snappy block may copy from further back than the
compiled window remembers. A search by time then looks into the stored batch from here, and Produce
unpacks what a client sent. Runs on a handler's thread; unpacking and walking release the GIL.
"""

from __future__ import annotations

import struct
from typing import Final

from kbroker.compression import Codec, CompressionError, decompress
from kbroker.log._tools import (
    CodecError,
    CodecMissing,
    RecordsWalk,
    unpack,
    unpacked_bytes_max,
    walk_records,
)

HEADER_BYTES: Final = 61
# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base timestamp,
# largest timestamp, producer id, producer epoch, base sequence, record count
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CODEC_MASK: Final = 0x07


def unpacked(codec: Codec, packed: memoryview) -> bytes:
    """The records of a packed batch, in C where it can; CompressionError if not sound or too long.

    Any codec but none.
    """
    bytes_max = unpacked_bytes_max(len(packed))
    try:
        return unpack(packed, codec, bytes_max)
    except CodecMissing:
        return decompress(codec, bytes(packed), bytes_max)
    except CodecError as error:
        raise CompressionError(str(error)) from error


def unpack_and_walk(
    batch: bytes,
    *,
    compacted: bool = False,
    gaps: bool = True,
    wanted_timestamp_ms: int = 2**63 - 1,
    from_offset: int = 0,
) -> RecordsWalk:
    """Walks the records of a whole batch, whatever its codec; raises CompressionError."""
    base_offset, *_, attributes, _, base_timestamp_ms, _, _, _, _, count = _HEADER.unpack_from(
        batch
    )
    packed = batch[HEADER_BYTES:]
    number = attributes & _CODEC_MASK
    if number > max(Codec):
        raise CompressionError(f"there is no codec {number}")
    return walk_records(
        decompress(Codec(number), packed, unpacked_bytes_max(len(packed))),
        Codec.NONE,
        count,
        base_timestamp_ms,
        compacted=compacted,
        gaps=gaps,
        wanted_timestamp_ms=wanted_timestamp_ms,
        wanted_delta_min=max(0, from_offset - base_offset),
    )


def batch_offsets(batch: bytes) -> tuple[int, int, int]:
    """(base offset, last offset, leader epoch) of a stored batch."""
    base_offset, _, leader_epoch, _, _, _, last_offset_delta, *_ = _HEADER.unpack_from(batch)
    return base_offset, base_offset + last_offset_delta, leader_epoch
