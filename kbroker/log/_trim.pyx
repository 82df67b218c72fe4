# cython: language_level=3
"""The front of a log: its start moves forward, and whole segments below the start leave it.

DeleteRecords moves the start, on a handler's thread and at once: from the next look on a reader
below it is out of range. The start may lie inside a batch, which is then served whole. Segments
that lie below it altogether are let go of later, in the background: out of the list under the
partition's lock, their files renamed by the caller. Slices that were lent keep theirs open, so
what was promised is sent.

The active segment goes only if every record in it is below the start; then a new one begins first.
The high watermark is at or above the start, so it never lies in a segment that goes, except at the
very end of the last of them, which is the beginning of the next.
"""

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove

from kbroker._atomics cimport kb_store_i64
from kbroker._log cimport PartitionLog
from kbroker._sync cimport kb_wall_ms
from kbroker.log._partition cimport Partition, Segment
from kbroker.log._records cimport (
    KAFKA_STORAGE_ERROR, NO_ERROR, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE)
from kbroker.log._segment cimport segment_drop_reference
from kbroker.log._storage cimport (
    Log, active_of, lock_partition, lock_to_look, log_of, log_roll, unlock_partition)

import os

from kbroker.errors import ErrorCode, KafkaError

# For move_start: wherever the high watermark is.
TO_HIGH_WATERMARK = -1


cdef int16_t move_start_locked(
    Partition* partition, int64_t offset, int64_t* start
) noexcept nogil:
    if not partition.online:
        return KAFKA_STORAGE_ERROR
    if not partition.is_leader:
        return NOT_LEADER_OR_FOLLOWER
    if offset == -1:
        offset = partition.high_watermark
    if offset < 0 or offset > partition.high_watermark:
        return OFFSET_OUT_OF_RANGE
    if offset > partition.log_start_offset:
        kb_store_i64(&partition.log_start_offset, offset)
    start[0] = partition.log_start_offset
    return NO_ERROR


cdef int32_t count_below_start(Partition* partition) noexcept nogil:
    # Segments that lie below the start; the active one counts when it has something to lose.
    cdef Log* log = log_of(partition)
    cdef int32_t count = 0
    if not partition.online or log.segment_count == 0:
        return 0
    while (count + 1 < log.segment_count
            and log.segments[count + 1].base_offset <= partition.log_start_offset):
        count += 1
    if (count + 1 == log.segment_count and active_of(log).size_bytes > 0
            and partition.log_start_offset == partition.log_end_offset):
        count += 1
    return count


cdef void drop_first(Log* log, int32_t count, Segment** dropped) noexcept nogil:
    cdef int32_t at
    cdef int64_t first
    for at in range(count):
        dropped[at] = log.segments[at]
    log.segment_count -= count
    memmove(log.segments, log.segments + count, <size_t>log.segment_count * sizeof(Segment*))
    first = log.segments[0].base_offset
    if log.high_watermark_base < first:
        log.high_watermark_base = first
        log.high_watermark_position = 0
    if log.recovery_point < first:
        kb_store_i64(&log.recovery_point, first)


def move_start(PartitionLog log not None, int64_t offset) -> int:
    """Moves the log's start to an offset, or to the high watermark; answers where it is then.

    It never moves back: an offset below it changes nothing. KafkaError beyond the high watermark,
    and where the log is not led or not readable here.
    """
    cdef int64_t start = -1
    cdef int16_t error
    with nogil:
        lock_partition(log.partition)
        error = move_start_locked(log.partition, offset, &start)
        unlock_partition(log.partition)
    if error:
        raise KafkaError(ErrorCode(error))
    return start


def segments_below_start(PartitionLog log not None) -> int:
    """How many segments `drop_below_start` would let go of."""
    cdef int32_t count
    with nogil:
        lock_to_look(log.partition)
        count = count_below_start(log.partition)
        unlock_partition(log.partition)
    return count


def drop_below_start(PartitionLog log not None, int64_t now_ms = -1) -> list:
    """Lets go of the segments below the start; answers their base offsets, oldest first.

    Their files are the caller's from here on. OSError if a new active segment cannot begin.
    """
    cdef Partition* partition = log.partition
    cdef Log* storage = log_of(partition)
    cdef Segment** dropped = NULL
    cdef int32_t count, at
    cdef int status = 0
    with nogil:
        lock_partition(partition)
        count = count_below_start(partition)
        if count:
            dropped = <Segment**>calloc(<size_t>count, sizeof(Segment*))
        if dropped != NULL and count == storage.segment_count:
            status = log_roll(
                storage, partition.log_end_offset, now_ms if now_ms >= 0 else kb_wall_ms())
        if dropped != NULL and status == 0:
            drop_first(storage, count, dropped)
        unlock_partition(partition)
    if count and dropped == NULL:
        raise MemoryError
    bases = []
    for at in range(count if status == 0 else 0):
        bases.append(dropped[at].base_offset)
        segment_drop_reference(dropped[at])
    free(dropped)
    if status:
        raise OSError(status, os.strerror(status), log.directory)
    return bases
