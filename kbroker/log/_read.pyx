# cython: language_level=3
"""From an offset to a slice of a segment's file, most often without a look into the file.

Any thread, no GIL. The lock is held while memory is consulted: the ring of recent batches, the
places handed out, and otherwise the sparse index. Then the .log is scanned from the index entry
on, a few KB by pread, without the lock: bytes below a segment's published size do not change,
and the reference that was taken keeps the file open.

A fetch in a run must not wait for the disk: what it would have to scan and is not in memory is
READ_WOULD_WAIT, and comes again from where waiting is allowed. A slice behind the recent tail says
whether it is cold.

A read never passes the high watermark. Its byte position is remembered as it moves, so that the
bound costs no look into the file either.
"""

from libc.errno cimport EAGAIN
from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker._atomics cimport kb_load_i64, kb_store_i64
from kbroker.log._partition cimport READ_WOULD_WAIT, FileSlice, Partition, Segment
from kbroker.log._records cimport (
    CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, NO_ERROR, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE)
from kbroker.log._segment cimport (
    Scan, part_of, scan_begin, scan_to_offset, segment_add_reference, segment_drop_reference,
    segment_scan_start)
from kbroker.log._warmth cimport look_whether_cold
from kbroker.log._storage cimport (
    HandedOut, Log, RecentBatch, handed_out_find, handed_out_note, lock_to_look,
    log_find_segment, log_of, recent_find, unlock_partition)


cdef struct Found:
    Segment* segment              # one reference, or NULL: nothing to read
    int64_t position              # of the batch, or where to begin to scan for it
    int64_t size_bytes            # of the batch; 0 if not known
    int64_t limit                 # read no further: the high watermark or the segment's end
    int32_t at                    # the segment's place in the list
    int exact                     # `position` is the batch's own
    int behind_tail               # it was not appended of late
    int64_t next_offset           # the one behind that batch; -1 if not known


cdef int64_t visible_bytes(const Log* log, Segment* segment) noexcept nogil:
    if segment.base_offset < log.high_watermark_base:
        return kb_load_i64(&segment.size_bytes)
    if segment.base_offset > log.high_watermark_base:
        return 0
    return log.high_watermark_position


cdef void look_up_locked(
    Partition* partition, int64_t offset, int32_t at, Found* found
) noexcept nogil:
    # Where `offset`'s batch is, or the first one behind it, in the segment at place `at`.
    cdef Log* log = log_of(partition)
    cdef Segment* segment = log.segments[at]
    cdef RecentBatch* recent = NULL
    cdef HandedOut* handed_out
    found.segment = segment
    found.at = at
    found.limit = visible_bytes(log, segment)
    found.exact = 1
    found.size_bytes = 0
    found.next_offset = -1
    found.behind_tail = 0
    if at == log.segment_count - 1:
        recent = recent_find(log, offset, partition.log_end_offset)
    if recent != NULL:
        found.position = recent.position
        found.size_bytes = recent.size_bytes
        return
    found.behind_tail = 1
    handed_out = handed_out_find(log, offset, segment.base_offset)
    if handed_out != NULL:
        found.position = handed_out.position
        found.size_bytes = handed_out.size_bytes
        return
    if offset <= segment.base_offset:
        found.position = 0
        return
    found.exact = 0
    found.position = segment_scan_start(segment, offset)


cdef int16_t begin_read_locked(
    Partition* partition, int64_t offset, int read_committed, Found* found
) noexcept nogil:
    cdef Log* log = log_of(partition)
    cdef int64_t end = partition.high_watermark
    found.segment = NULL
    if read_committed and partition.last_stable_offset < end:
        end = partition.last_stable_offset
    if not partition.online:
        return KAFKA_STORAGE_ERROR
    if not partition.is_leader:
        return NOT_LEADER_OR_FOLLOWER
    if offset < partition.log_start_offset or offset > partition.log_end_offset:
        return OFFSET_OUT_OF_RANGE
    if offset >= end:
        return NO_ERROR
    look_up_locked(partition, offset, log_find_segment(log, offset), found)
    segment_add_reference(found.segment)
    return NO_ERROR


cdef int next_segment(Partition* partition, Found* found, int64_t offset) noexcept nogil:
    # Nothing at or behind `offset` in this segment: on to the next one. 1 if there is one.
    cdef Log* log = log_of(partition)
    cdef int64_t base_offset = found.segment.base_offset
    cdef int32_t at
    segment_drop_reference(found.segment)
    found.segment = NULL
    lock_to_look(partition)
    at = log_find_segment(log, base_offset) + 1
    if partition.online and at < log.segment_count:
        look_up_locked(partition, offset, at, found)
        segment_add_reference(found.segment)
    unlock_partition(partition)
    return found.segment != NULL


cdef int16_t error_of(const Scan* scan) noexcept nogil:
    # Of a scan that has ended at no batch. Damage is told: a client would try again for ever for a
    # disk that does not answer.
    if scan.status == EAGAIN:
        return READ_WOULD_WAIT
    return KAFKA_STORAGE_ERROR if scan.status != 0 else CORRUPT_MESSAGE


cdef int16_t scan_for(
    Partition* partition, Found* found, int64_t offset, int may_wait
) noexcept nogil:
    # Makes `found` exact. Without the lock. The batch may be in a later segment, or not there.
    cdef Scan scan
    cdef int status
    while found.segment != NULL and (not found.exact or found.position >= found.limit):
        if found.position < found.limit:
            scan_begin(&scan, found.segment.fd, found.position, found.limit)
            scan.must_not_wait = not may_wait
            status = scan_to_offset(&scan, offset)
            # A batch that goes on behind the segment's end ends it, as in Apache Kafka.
            if status < 0 and not scan.torn:
                return error_of(&scan)
            if status == 1:
                found.exact = 1
                found.position = scan.position
                found.size_bytes = scan.header.size_bytes
                found.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
                return NO_ERROR
        if not next_segment(partition, found, offset):
            return NO_ERROR
    return NO_ERROR


cdef int16_t measure(Found* found, int may_wait) noexcept nogil:
    # The size of the batch at an exact position.
    cdef Scan scan
    scan_begin(&scan, found.segment.fd, found.position, found.limit)
    scan.must_not_wait = not may_wait
    if scan_to_offset(&scan, 0) != 1:
        return error_of(&scan)
    found.size_bytes = scan.header.size_bytes
    found.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
    return NO_ERROR


cdef int16_t cut(
    Found* found, int64_t max_bytes, int whole_first, int may_wait, FileSlice* out
) noexcept nogil:
    # The slice from an exact position. Its segment's reference goes to `out`, or is dropped.
    cdef int64_t length = found.limit - found.position
    cdef int16_t error = NO_ERROR
    if length > max_bytes:
        length = max_bytes if max_bytes > 0 else 0
        # Only if some batch here is larger than what may be sent does this one's size matter.
        if found.size_bytes == 0 and part_of(found.segment).largest_batch_bytes > max_bytes:
            error = measure(found, may_wait)
        if error == NO_ERROR and found.size_bytes > max_bytes:
            length = found.size_bytes if whole_first else 0
    if error != NO_ERROR or length <= 0:
        segment_drop_reference(found.segment)
        return error
    out.segment = found.segment
    out.fd = found.segment.fd
    out.position = found.position
    out.length = length
    return NO_ERROR


cdef void note_place(Log* log, Found* found, int64_t offset, const FileSlice* out) noexcept nogil:
    # Where the next reader of the same offset finds it, or the same reader goes on.
    if out.length == found.size_bytes:
        handed_out_note(
            log, found.next_offset, out.segment.base_offset, out.position + out.length, 0)
    else:
        handed_out_note(log, offset, out.segment.base_offset, out.position, found.size_bytes)


cdef int16_t read_slice(
    Partition* partition, int64_t offset, int64_t max_bytes, int whole_first, int read_committed,
    int may_wait, FileSlice* out
) noexcept nogil:
    cdef Log* log = log_of(partition)
    cdef Found found
    cdef int16_t error
    cdef int scanned, known
    out.segment = NULL
    out.fd = -1
    out.position = 0
    out.length = 0
    out.cold = 0
    lock_to_look(partition)
    error = begin_read_locked(partition, offset, read_committed, &found)
    scanned = found.segment != NULL and not found.exact
    known = found.segment != NULL and found.size_bytes > 0
    if found.segment != NULL and not scanned:
        log.fast_reads += 1
    unlock_partition(partition)
    if error != NO_ERROR or found.segment == NULL:
        return error
    error = scan_for(partition, &found, offset, may_wait)
    if error != NO_ERROR:
        segment_drop_reference(found.segment)
        return error
    if found.segment == NULL:
        return NO_ERROR
    error = cut(&found, max_bytes, whole_first, may_wait, out)
    if found.behind_tail and out.segment != NULL:
        look_whether_cold(partition, out, found.limit)
    if not known and found.size_bytes > 0 and out.segment != NULL:
        lock_to_look(partition)
        note_place(log, &found, offset, out)
        log.file_scans += 1
        unlock_partition(partition)
    return error


cdef int64_t readable_bytes_locked(
    Partition* partition, int64_t offset, int64_t max_bytes, int read_committed
) noexcept nogil:
    cdef Log* log = log_of(partition)
    cdef Found found
    cdef int64_t total = 0
    cdef int32_t at
    if begin_read_locked(partition, offset, read_committed, &found) == NO_ERROR \
            and found.segment != NULL:
        segment_drop_reference(found.segment)
        total = found.limit - found.position
        at = found.at + 1
        while at < log.segment_count and total < max_bytes:
            total += visible_bytes(log, log.segments[at])
            at += 1
    if total < 0:
        total = 0
    return total if total < max_bytes else max_bytes


cdef int64_t readable_bytes(
    Partition* partition, int64_t offset, int64_t max_bytes, int read_committed
) noexcept nogil:
    cdef int64_t total
    lock_to_look(partition)
    total = readable_bytes_locked(partition, offset, max_bytes, read_committed)
    unlock_partition(partition)
    return total


cdef int16_t set_high_watermark_locked(Partition* partition, int64_t offset) noexcept nogil:
    cdef Log* log = log_of(partition)
    cdef Found found
    cdef Scan scan
    cdef int32_t at
    if offset > partition.log_end_offset:
        offset = partition.log_end_offset
    if offset < partition.log_start_offset:
        offset = partition.log_start_offset
    if offset == partition.log_end_offset:
        at = log.segment_count - 1
        log.high_watermark_position = log.segments[at].size_bytes
    else:
        at = log_find_segment(log, offset)
        look_up_locked(partition, offset, at, &found)
        if not found.exact:
            scan_begin(
                &scan, found.segment.fd, found.position, kb_load_i64(&found.segment.size_bytes))
            if scan_to_offset(&scan, offset) < 0:
                return KAFKA_STORAGE_ERROR
            found.position = scan.position
        log.high_watermark_position = found.position
    log.high_watermark_base = log.segments[at].base_offset
    kb_store_i64(&partition.high_watermark, offset)
    kb_store_i64(&partition.last_stable_offset, offset)
    return NO_ERROR
