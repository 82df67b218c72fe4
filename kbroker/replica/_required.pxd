# cython: language_level=3
"""What must hold of a partition before it is appended to or read; inline, without a module.

Each function answers 0 where it does not: that is counted and reported, and the log is offline.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_load_i64
from kbroker.log.engine._records cimport (
    AT_LAST_OFFSET_DELTA, AT_LENGTH, AT_MAGIC, HEADER_BYTES, LOG_OVERHEAD_BYTES)
from kbroker.log.engine._storage cimport Log, log_requires
from kbroker.log.engine._types cimport Batch, Bound, FileSlice
from kbroker.protocol._cursor cimport get_i32


cdef inline int watermarks_are_sound_locked(
    Log* log, int is_leader, int64_t high_watermark, int64_t last_stable
) noexcept nogil:
    # Before they are answered, or something is appended above them. A follower's log that is cut
    # has its high watermark lowered after the cut.
    return (
        log_requires(log, not is_leader or high_watermark <= log.log_end_offset,
                     "high watermark: it is at or below the log's end", high_watermark,
                     log.log_end_offset)
        and log_requires(log, last_stable <= high_watermark,
                         "last stable offset: it is at or below the high watermark", last_stable,
                         high_watermark)
    )


cdef inline int batches_are_sound(Log* log, const Batch* first) noexcept nogil:
    # Before their offsets are written into them, and they to the file.
    cdef const Batch* batch = first
    cdef int64_t length, count
    while batch != NULL:
        if batch.error == 0:
            if not log_requires(log, batch.data != NULL and batch.length_bytes >= HEADER_BYTES,
                                "append: a batch has a header", batch.length_bytes, HEADER_BYTES):
                return 0
            length = LOG_OVERHEAD_BYTES + get_i32(batch.data + AT_LENGTH)
            count = <int64_t>get_i32(batch.data + AT_LAST_OFFSET_DELTA) + 1
            if not (
                log_requires(log, batch.length_bytes == length,
                             "append: a batch is as long as its header says",
                             batch.length_bytes, length)
                and log_requires(log, batch.record_count == count,
                                 "append: a batch has as many offsets as its header says",
                                 batch.record_count, count)
                and log_requires(log, batch.data[AT_MAGIC] == 2, "append: a batch is of format 2",
                                 batch.data[AT_MAGIC], 2)
            ):
                return 0
        batch = batch.next
    return 1


cdef inline int slice_is_sound(Log* log, const FileSlice* slice, const Bound* bound) noexcept nogil:
    # What a read has found, before it is promised to anyone.
    cdef int64_t size_bytes = kb_load_i64(&slice.segment.size_bytes)
    return (
        log_requires(log, slice.fd >= 0, "read: a slice has a file", slice.fd, 0)
        and log_requires(log, slice.position >= 0 and slice.length >= 0,
                         "read: a slice has a place", slice.position, slice.length)
        and log_requires(log, slice.position + slice.length <= size_bytes,
                         "read: a slice ends in what was written",
                         slice.position + slice.length, size_bytes)
        and log_requires(log, slice.segment.base_offset < bound.offset,
                         "read: a slice is below what may be read", slice.segment.base_offset,
                         bound.offset)
    )
