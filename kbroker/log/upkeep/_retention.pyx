# cython: language_level=3
"""Which segments of a log may go by age and by size.

Whole segments, from the oldest on. By age one goes when its newest record is older than
`retention.ms`; one without timestamps has that of its file. By size it goes when what is left has
`retention.bytes` at least, so a log is larger than that by up to a segment. What is not below the
high watermark stays, and so does an active segment that is empty: there is nothing to gain. The
active one goes like any other; a new one begins first (`_trim`).

Size comes first, then age, from where that has come to; each goes on until the first segment that
it keeps.

The largest timestamp of a segment that was opened is the last entry of its time index, mostly; a
start reads the last batches alone. An entry is 12 bytes without a CRC, and a wrong one would have
records removed too early, or never: so before a segment goes by age, and where its largest lies in
the future, the batch is looked at that the entry names. If that has another timestamp the headers
say which is the largest. Each segment is looked at once, without the log's lock (`check_newest`).
Kafka: topic configurations retention.ms and retention.bytes.
"""

from libc.stdint cimport int32_t, int64_t
from posix.stat cimport fstat, struct_stat

from kbroker._log cimport LocalLog
from kbroker.core._atomics cimport kb_load_i64
from kbroker.log.engine._index_look cimport log_scan_start
from kbroker.log.engine._segment cimport (
    Scan, SegmentPart, part_of, scan_advance, scan_begin, scan_from_index, scan_next,
    scan_to_offset, segment_add_reference, segment_drop_reference)
from kbroker.log.engine._storage cimport Log, lock_log, lock_to_look, unlock_log
from kbroker.log.engine._types cimport Segment


cdef struct Newest:
    # The largest timestamp of a segment, and the last offset of the batch that has it.
    int64_t timestamp_ms
    int64_t offset


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


# --- What a time index says -----------------------------------------------------------------------

cdef Segment* _believed_locked(Log* log, int64_t age_ms, int64_t now_ms) noexcept nogil:
    # The first whose entry decides whether it goes, with a reference; NULL: there is none.
    cdef int32_t at
    cdef Segment* segment
    for at in range(log.segment_count if log.online else 0):
        segment = log.segments[at]
        if _end_of(log, at) <= log.log_start_offset:
            continue
        if not _is_old(segment, age_ms, now_ms) and segment_newest_ms(segment) <= now_ms:
            break
        if part_of(segment).believed_offset >= 0:
            segment_add_reference(segment)
            return segment
        if not _is_old(segment, age_ms, now_ms):
            break
    return NULL


cdef int _is_so(Log* log, Segment* segment, int64_t limit) noexcept nogil:
    # Whether the batch has the timestamp that the entry says.
    cdef Scan scan
    cdef int64_t offset = part_of(segment).believed_offset
    cdef int found
    scan_begin(&scan, segment.fd, log_scan_start(log, segment, offset), limit)
    found = scan_from_index(&scan, offset)
    if found == 1:
        found = scan_to_offset(&scan, offset)
    return (found == 1 and scan.header.base_offset <= offset
            and scan.header.max_timestamp_ms == part_of(segment).believed_ms)


cdef int _look_for_newest(Segment* segment, int64_t limit, Newest* newest) noexcept nogil:
    # By its headers; 0: not all of them can be read.
    cdef Scan scan
    newest.timestamp_ms = -1
    newest.offset = segment.base_offset
    scan_begin(&scan, segment.fd, 0, limit)
    while scan_next(&scan) == 1:
        if scan.header.record_count > 0 and scan.header.max_timestamp_ms > newest.timestamp_ms:
            newest.timestamp_ms = scan.header.max_timestamp_ms
            newest.offset = scan.header.base_offset + scan.header.last_offset_delta
        scan_advance(&scan)
    return scan.position >= limit


cdef int _check_next(Log* log, int64_t age_ms, int64_t now_ms) noexcept nogil:
    # 0: there is none.
    cdef Segment* segment
    cdef SegmentPart* part
    cdef Newest newest
    cdef int64_t limit
    cdef int corrected
    lock_to_look(log)
    segment = _believed_locked(log, age_ms, now_ms)
    unlock_log(log)
    if segment == NULL:
        return 0
    part = part_of(segment)
    limit = kb_load_i64(&segment.size_bytes)
    corrected = not _is_so(log, segment, limit) and _look_for_newest(segment, limit, &newest)
    lock_log(log)
    part.believed_offset = -1
    # What was appended meanwhile is in the headers that were not read.
    if corrected and (kb_load_i64(&segment.size_bytes) == limit
                      or newest.timestamp_ms > part.max_timestamp_ms):
        part.max_timestamp_ms = newest.timestamp_ms
        part.max_timestamp_offset = newest.offset
    unlock_log(log)
    segment_drop_reference(segment)
    return 1


def check_newest(LocalLog log not None, int64_t age_ms, int64_t now_ms) -> None:
    """Before retention by age: what the time indexes say of the segments that it looks at is what
    their batches say. Waits for the disk; a segment that it does not read is taken by its word."""
    with nogil:
        while _check_next(log.storage, age_ms, now_ms):
            pass
