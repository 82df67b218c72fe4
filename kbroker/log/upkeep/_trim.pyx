# cython: language_level=3
"""The front of a log: its start moves forward, and whole segments below the start leave it.

DeleteRecords moves the start (`replica/_partition`), on a handler's thread and at once: from the
next look on a reader below it is out of range. The start may lie inside a batch, which is then
served whole. Segments that lie below it altogether are let go of later, in the background: out of
the list under the log's lock, their files renamed by the caller. Slices that were lent keep theirs
open, so what was promised is sent.

The active segment goes only if every record in it is below the start; then a new one begins first.
The high watermark is at or above the start, so it never lies in a segment that goes, except at the
very end of the last of them, which is the beginning of the next.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove

from kbroker._log cimport LocalLog
from kbroker.core._atomics cimport kb_store_i64
from kbroker.core._sync cimport kb_wall_ms
from kbroker.log.engine._segment cimport segment_drop_reference
from kbroker.log.engine._storage cimport (
    Log, active_of, lock_log, lock_to_look, log_requires, log_roll, unlock_log)
from kbroker.log.engine._types cimport Segment

import os


cdef void log_move_start_locked(Log* log, int64_t offset) noexcept nogil:
    if offset > log.log_start_offset and log_requires(
            log, offset <= log.log_end_offset, "log start: it is at or before the end", offset,
            log.log_end_offset):
        kb_store_i64(&log.log_start_offset, offset)


cdef int32_t count_below_start(Log* log, int64_t bound) noexcept nogil:
    # Segments that lie below the start, and below `bound`; the active one counts when it has
    # something to lose.
    cdef int32_t count = 0
    cdef int64_t start = min(log.log_start_offset, bound)
    if not log.online or log.segment_count == 0:
        return 0
    while count + 1 < log.segment_count and log.segments[count + 1].base_offset <= start:
        count += 1
    if (count + 1 == log.segment_count and active_of(log).size_bytes > 0
            and start == log.log_end_offset):
        count += 1
    return count


cdef int log_drop_first_locked(Log* log, int32_t count, Segment** dropped) noexcept nogil:
    cdef int32_t at
    cdef int64_t first
    if not log_requires(log, 0 < count < log.segment_count,
                        "segments: one stays when the first go", count, log.segment_count):
        return 0
    for at in range(count):
        dropped[at] = log.segments[at]
    log.segment_count -= count
    memmove(log.segments, log.segments + count, <size_t>log.segment_count * sizeof(Segment*))
    first = log.segments[0].base_offset
    if log.recovery_point < first:
        kb_store_i64(&log.recovery_point, first)
    return 1


def segments_below_start(LocalLog log not None) -> int:
    """How many segments `drop_below_start` would let go of."""
    cdef int32_t count
    with nogil:
        lock_to_look(log.storage)
        count = count_below_start(log.storage, INT64_MAX)
        unlock_log(log.storage)
    return count


def drop_below_start(
    LocalLog log not None, int64_t now_ms = -1, int64_t bound = INT64_MAX
) -> list:
    """Lets go of the segments below the start, or only of those below `bound` as well; answers
    their base offsets, oldest first.

    Their files are the caller's from here on. Where no new active segment can begin the present one
    stays, and it is an OSError if no other goes.
    """
    cdef Log* storage = log.storage
    cdef Segment** dropped = NULL
    cdef int32_t count, at
    cdef int status = 0, goes
    with nogil:
        lock_log(storage)
        count = count_below_start(storage, bound)
        if count:
            dropped = <Segment**>calloc(<size_t>count, sizeof(Segment*))
        if dropped != NULL and count == storage.segment_count:
            status = log_roll(
                storage, storage.log_end_offset, now_ms if now_ms >= 0 else kb_wall_ms())
            if status != 0 and count > 1:
                count, status = count - 1, 0
        goes = dropped != NULL and status == 0 and log_drop_first_locked(storage, count, dropped)
        unlock_log(storage)
    if count and dropped == NULL:
        raise MemoryError
    bases = []
    for at in range(count if goes else 0):
        bases.append(dropped[at].base_offset)
        segment_drop_reference(dropped[at])
    free(dropped)
    if status:
        raise OSError(status, os.strerror(status), log.directory)
    return bases
