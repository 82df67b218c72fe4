"""Offsets by timestamp, as ListOffsets asks for them: what C cannot unpack is unpacked here.

From any thread that may wait for the disk; no lock is held but the log's, by the calls below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.compression import CompressionError
from kbroker.config.key import LONG_MAX
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine.validator import batch_offsets, unpack_and_walk

if TYPE_CHECKING:
    from kbroker.log.looking._tools import RecordsWalk
    from kbroker.replica._replica import Replica


def offset_for_time(replica: Replica, timestamp_ms: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record not older, below the watermark."""
    found = replica.find_by_time(timestamp_ms)
    while found is not None and found[3]:
        batch = _batch_at(replica, found[0])
        if batch is None:
            found = replica.find_by_time(timestamp_ms)  # the start has moved on
            continue
        walk = _walk(batch, wanted_timestamp_ms=timestamp_ms, from_offset=replica.log_start_offset)
        base_offset, last_offset, leader_epoch = batch_offsets(batch)
        if walk.found_delta >= 0:
            return base_offset + walk.found_delta, walk.found_timestamp_ms, leader_epoch
        found = replica.find_by_time(timestamp_ms, last_offset + 1)
    return found[:3] if found is not None else None


def offset_of_max_timestamp(replica: Replica) -> tuple[int, int, int] | None:
    """The same for the first record with the largest timestamp; None if there are none.

    Like Apache Kafka, it may name a record that has been deleted, while its segment is there. Of a
    batch that has been deleted the records are not read any more: its first offset is named, with
    the timestamp that its header has."""
    found = replica.find_max_timestamp()
    while found is not None and found[3]:
        batch = _batch_at(replica, found[0])
        if batch is not None:
            walk = _walk(batch)
            base_offset, _, leader_epoch = batch_offsets(batch)
            return base_offset + walk.max_timestamp_delta, walk.max_timestamp_ms, leader_epoch
        before, found = found, replica.find_max_timestamp()
        if found == before:
            break  # it is deleted, and its segment is still there
    return found[:3] if found is not None else None


def _walk(
    batch: bytes, *, wanted_timestamp_ms: int = LONG_MAX, from_offset: int = 0
) -> RecordsWalk:
    """KafkaError: it does not hold what its codec makes."""
    try:
        return unpack_and_walk(
            batch, wanted_timestamp_ms=wanted_timestamp_ms, from_offset=from_offset
        )
    except CompressionError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _batch_at(replica: Replica, base_offset: int) -> bytes | None:
    """The whole batch that begins there; None if all its records have been deleted."""
    try:
        batch = replica.read(max(base_offset, replica.log_start_offset), 1)
    except KafkaError as error:
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        raise
    return batch if batch and batch_offsets(batch)[0] == base_offset else None
