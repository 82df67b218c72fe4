# cython: language_level=3
"""Which segments of a log may go by age and by size.

Whole segments, from the oldest on. By age one goes when its newest record is older than
`retention.ms`; one without timestamps has that of its file. By size it goes when what is left has
`retention.bytes` at least, so a log is larger than that by up to a segment. What is not below the
high watermark stays, and so does an active segment that is empty: there is nothing to gain. The
active one goes like any other; a new one begins first (`_trim`).

Size comes first, then age, from where that has come to; each goes on until the first segment that
it keeps.
Kafka: topic configurations retention.ms and retention.bytes.
"""

from libc.stdint cimport int32_t, int64_t
from posix.stat cimport fstat, struct_stat

from kbroker.log.engine._segment cimport part_of
from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Segment


cdef int64_t _end_of(const Log* log, int32_t at) noexcept nogil:
    if at + 1 < log.segment_count:
        return log.segments[at + 1].base_offset
    return log.log_end_offset


cdef int64_t segment_newest_ms(Segment* segment) noexcept nogil:
    cdef struct_stat found
    if part_of(segment).max_timestamp_ms >= 0:
        return part_of(segment).max_timestamp_ms
    if fstat(segment.fd, &found) != 0:
        return -1
    return <int64_t>found.st_mtime * 1000


cdef int _is_old(Segment* segment, int64_t age_ms, int64_t now_ms) noexcept nogil:
    cdef int64_t newest_ms = segment_newest_ms(segment)
    return newest_ms >= 0 and now_ms - newest_ms > age_ms


cdef int _may_go(const Log* log, int32_t at, int64_t high_watermark) noexcept nogil:
    # The last one, empty, has nothing to lose.
    if at >= log.segment_count or _end_of(log, at) > high_watermark:
        return 0
    return at + 1 < log.segment_count or log.segments[at].size_bytes > 0


cdef int32_t _first_by_size(
    Log* log, int32_t first, int64_t size_bytes, int64_t high_watermark
) noexcept nogil:
    cdef int64_t left_bytes = 0
    cdef int32_t at
    for at in range(first, log.segment_count):
        left_bytes += log.segments[at].size_bytes
    while (_may_go(log, first, high_watermark)
            and left_bytes - log.segments[first].size_bytes >= size_bytes):
        left_bytes -= log.segments[first].size_bytes
        first += 1
    return first


cdef int32_t _first_by_age(
    Log* log, int32_t first, int64_t age_ms, int64_t high_watermark, int64_t now_ms
) noexcept nogil:
    while (_may_go(log, first, high_watermark)
            and _is_old(log.segments[first], age_ms, now_ms)):
        first += 1
    return first


cdef int64_t retained_from_locked(
    Log* log, const Retention* retention, int64_t high_watermark, int64_t now_ms
) noexcept nogil:
    cdef int32_t first = 0
    cdef int32_t kept
    if not log.online:
        return log.log_start_offset
    # What lies below the start is on its way out.
    while first < log.segment_count and _end_of(log, first) <= log.log_start_offset:
        first += 1
    kept = first
    if retention.size_bytes >= 0:
        kept = _first_by_size(log, kept, retention.size_bytes, high_watermark)
    if retention.age_ms >= 0:
        kept = _first_by_age(log, kept, retention.age_ms, high_watermark, now_ms)
    return _end_of(log, kept - 1) if kept > first else log.log_start_offset
