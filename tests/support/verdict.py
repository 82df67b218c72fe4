"""What the records of a produced batch are worth, by the way that goes through Python.

The oracle beside the compiled validation: the same walk over bytes that another library unpacked.
"""

from __future__ import annotations

from kbroker.compression import CompressionError
from kbroker.errors import ErrorCode
from kbroker.log.engine.validator import unpack_and_walk
from kbroker.protocol.record_batch import HEADER_BYTES


def check_batch(batch: bytes, *, compacted: bool = False) -> ErrorCode:
    if len(batch) < HEADER_BYTES:
        return ErrorCode.INVALID_RECORD
    try:
        return ErrorCode(unpack_and_walk(batch, compacted=compacted, gaps=False).error)
    except CompressionError:
        return ErrorCode.INVALID_RECORD
