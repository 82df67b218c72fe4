# cython: language_level=3
"""Which segments of a log may go by age and by size.

Whole segments, from the oldest on. By age one goes when its newest record is older than
`retention.ms`; one without timestamps has that of its file. By size it goes when what is left has
`retention.bytes` at least, so a log is larger than that by up to a segment. What is not below the
high watermark stays, and so does an active segment that is empty: there is nothing to gain. The
active one goes like any other; a new one begins first (`_trim`).

Either bound goes on from the front until the first segment that it keeps; the later start counts.
Kafka: topic configurations retention.ms and retention.bytes.
"""

from libc.stdint cimport int32_t, int64_t
from posix.stat cimport fstat, struct_stat

from kbroker.log._segment cimport part_of
from kbroker.log._storage cimport Log
from kbroker.log._types cimport Segment


cdef int64_t _end_of(const Log* log, int32_t at) noexcept nogil:
    if at + 1 < log.segment_count:
        return log.segments[at + 1].base_offset
    return log.log_end_offset


cdef int64_t _newest_ms(Segment* segment) noexcept nogil:
    cdef struct_stat found
    if part_of(segment).max_timestamp_ms >= 0:
        return part_of(segment).max_timestamp_ms
    if fstat(segment.fd, &found) != 0:
        return -1
    return <int64_t>found.st_mtime * 1000


cdef int _is_old(Segment* segment, int64_t age_ms, int64_t now_ms) noexcept nogil:
    cdef int64_t newest_ms = _newest_ms(segment)
    return newest_ms >= 0 and now_ms - newest_ms > age_ms


cdef int64_t retained_from_locked(
    Log* log, const Retention* retention, int64_t high_watermark, int64_t now_ms
) noexcept nogil:
    cdef int64_t start = log.log_start_offset
    cdef int64_t left_bytes = 0
    cdef int by_age = retention.age_ms >= 0
    cdef int by_size = retention.size_bytes >= 0
    cdef int32_t at
    if not log.online:
        return start
    for at in range(log.segment_count):
        if _end_of(log, at) > log.log_start_offset:   # what lies below is on its way out
            left_bytes += log.segments[at].size_bytes
    for at in range(log.segment_count):
        if _end_of(log, at) <= log.log_start_offset:
            continue
        if _end_of(log, at) > high_watermark or log.segments[at].size_bytes == 0:
            break
        by_age = by_age and _is_old(log.segments[at], retention.age_ms, now_ms)
        by_size = by_size and left_bytes - log.segments[at].size_bytes >= retention.size_bytes
        if not (by_age or by_size):
            break
        left_bytes -= log.segments[at].size_bytes
        start = _end_of(log, at)
    return start
