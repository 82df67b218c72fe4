"""Batches that the compiled log cannot open: unpacked here, walked there.

A machine may lack a codec's library, and a Snappy block may copy from further back than the
compiled window remembers. A search by time then looks into the stored batch from here, and Produce
unpacks what a client sent. Runs on a handler's thread; unpacking and walking release the GIL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker import limits
from kbroker.bytes_budget import BytesBudget
from kbroker.compression import (
    Codec,
    CompressionError,
    TooLongError,
    decompress_in_python,
    unpacked_bytes_max,
)
from kbroker.log.looking._tools import RecordsWalk, walk_records
from kbroker.protocol._unpacking import CodecError, CodecMissing, CodecTooLong, Unpacking
from kbroker.protocol.record_batch import BATCH_HEADER, CODEC_MASK, HEADER_BYTES

TWIN_BYTES_RATIO: Final = 3  # a codec's output, a copy of it, and the batch that is made of it

# Shared by all that holds records in memory which the compiled log would read through a window.
UNPACKED: Final = BytesBudget(limits.REPACKED_BYTES_MAX)


def unpacked_pieces(codec: Codec, packed: memoryview) -> Iterator[bytes]:
    """The records of a batch, piece by piece; CompressionError if C cannot, or they are damaged."""
    stream = Unpacking(packed, codec, unpacked_bytes_max(len(packed)))
    try:
        while piece := stream.read(limits.UNPACKED_PIECE_BYTES):
            yield piece
    except CodecTooLong as error:
        raise TooLongError(str(error)) from error
    except (CodecError, CodecMissing) as error:
        raise CompressionError(str(error)) from error


def unpacked_whole(codec: Codec, packed: memoryview, output_bytes_max: int) -> bytes:
    """The same in Python and in one piece, where C cannot; TWIN_BYTES_RATIO of it at once."""
    bytes_max = min(output_bytes_max, unpacked_bytes_max(len(packed)))
    return decompress_in_python(codec, bytes(packed), bytes_max)


def unpack_and_walk(
    batch: bytes,
    *,
    compacted: bool = False,
    gaps: bool = True,
    wanted_timestamp_ms: int = 2**63 - 1,
    from_offset: int = 0,
) -> RecordsWalk:
    """Walks the records of a whole batch, whatever its codec; raises CompressionError."""
    base_offset, *_, attributes, _, base_timestamp_ms, _, _, _, _, count = BATCH_HEADER.unpack_from(
        batch
    )
    packed = batch[HEADER_BYTES:]
    number = attributes & CODEC_MASK
    if number > max(Codec):
        raise CompressionError(f"there is no codec {number}")
    # What it will take is not known; it is not less than it would be as a client's.
    with UNPACKED.held(TWIN_BYTES_RATIO * unpacked_bytes_max(len(packed))):
        return walk_records(
            decompress_in_python(Codec(number), packed),
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
    base_offset, _, leader_epoch, _, _, _, last_offset_delta, *_ = BATCH_HEADER.unpack_from(batch)
    return base_offset, base_offset + last_offset_delta, leader_epoch
