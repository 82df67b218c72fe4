# cython: language_level=3
"""From an offset to a slice of a segment's file, most often without a look into the file.

Any thread, no GIL. The lock is held while memory is consulted: the ring of recent batches, the
places handed out, and otherwise the sparse index, if it is mapped or in the page cache. One that
the disk has to be asked for is read without the lock (`_index_look.pyx`). So is the .log, which is
scanned from the index entry on, a few KB by pread: bytes below a segment's published size do not
change, and the reference that was taken keeps the file open.

A fetch in a run must not wait for the disk: where it would have to look at bytes that are not in
memory, it is READ_WOULD_WAIT, and comes again from where waiting is allowed. One on a Processor's
thread waits for nothing: it neither asks an index nor waits for the lock. A slice older than the
recent tail says whether it is cold.

A client's read does not start with batches that compaction left without records: librdkafka takes
an answer without any record for a sign that its fetch size is too small, doubles it, and after some
ten of them gives up. A follower has to have them all.

Bytes that this process has not written, nor read when it opened the log, are looked at before they
are sent: a slice ends where no batch follows. The headers alone are read, once for each reader that
goes through a segment in order; no CRC is computed. Many of them take as long as a look at the
disk, and are looked at where that may be waited for.

A short slice of older records is copied, where its reader has room for it and it is in memory: one
read instead of one for each look at a header, and none to find out whether it is cold.

A read never passes its bound: the high watermark of a consumer, the log's end of a follower. A
bound has its place in the files with it, so that it costs no look into them either.
"""

from libc.errno cimport EAGAIN
from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._atomics cimport kb_load_i64, kb_load_int
from kbroker.core._error_codes cimport (
    CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, NO_ERROR, OFFSET_OUT_OF_RANGE)
from kbroker.core._limits cimport COPIED_SLICE_BYTES_MAX
from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._index_look cimport log_scan_start
from kbroker.log.engine._next_place cimport Place, find_next_place
from kbroker.log.engine._records cimport HEADER_BYTES
from kbroker.log.engine._segment cimport (
    SCAN_CHUNK_BYTES, Scan, SegmentPart, part_of, scan_advance, scan_begin, scan_begin_in_copy,
    scan_from_index, scan_next, scan_to_offset, segment_add_reference, segment_drop_reference,
    segment_scan_start, segment_scan_start_now, slice_release)
from kbroker.log.engine._storage cimport (
    HandedOut, Log, RecentBatch, handed_out_find, handed_out_note, lock_to_look, lock_to_look_if,
    log_end_locked, log_find_segment, log_has_segment, recent_find, unlock_log)
from kbroker.log.engine._types cimport (
    READ_WOULD_WAIT, WAITS_FOR_DISK, WAITS_FOR_LOCKS, WAITS_FOR_NOTHING, Bound, FileSlice, Segment)
from kbroker.log.engine._warmth cimport look_whether_cold

cdef enum:
    EMPTY_PASSED_MAX = 4096         # batches in one read: 250 KB of the file are read for them
    # Of which the headers are read where others wait meanwhile: those of 50 MB take 30 ms.
    UNSEEN_AT_ONCE_MAX = 64 << 10


cdef int64_t bytes_below(const Log* log, int32_t at, const Bound* bound) noexcept nogil:
    cdef Segment* segment = log.segments[at]
    cdef int64_t size_bytes = kb_load_i64(&segment.size_bytes)
    # Where all of it lies below in offsets its file is read whole: it may have been compacted since
    # the bound was taken, and be longer.
    if at + 1 < log.segment_count and log.segments[at + 1].base_offset <= bound.offset:
        return size_bytes
    if segment.base_offset < bound.segment_base:
        return size_bytes
    if segment.base_offset > bound.segment_base:
        return 0
    # A bound that was taken some time ago may meet a log that was cut since.
    return min(bound.position, size_bytes)


cdef int16_t look_up_locked(
    Log* log, int64_t offset, int32_t at, const Bound* bound, Found* found
) noexcept nogil:
    # Where `offset`'s batch is, or the first one after it, in the segment at place `at`.
    cdef Segment* segment = log.segments[at]
    cdef RecentBatch* recent = NULL
    cdef HandedOut* handed_out
    cdef SegmentPart* part = part_of(segment)
    found.segment = segment
    found.unseen_end = part.unseen_end
    found.seen_from = part.seen_from
    found.seen_to = part.seen_to
    found.limit = bytes_below(log, at, bound)
    found.exact = 1
    found.size_bytes = 0
    found.next_offset = -1
    found.is_old = 0
    if at == log.segment_count - 1:
        recent = recent_find(log, offset, log.log_end_offset)
    if recent != NULL:
        found.position = recent.position
        found.size_bytes = recent.size_bytes
        return NO_ERROR
    found.is_old = 1
    handed_out = handed_out_find(log, offset, segment.base_offset)
    if handed_out != NULL:
        found.position = handed_out.position
        found.size_bytes = handed_out.size_bytes
        return NO_ERROR
    if offset <= segment.base_offset:
        found.position = 0
        return NO_ERROR
    found.exact = 0
    if found.patience != WAITS_FOR_NOTHING and segment_scan_start_now(
            segment, offset, &found.position):
        return NO_ERROR
    if found.patience < WAITS_FOR_DISK:
        found.segment = NULL
        return READ_WOULD_WAIT
    found.position = IN_A_FILE
    return NO_ERROR


cdef int16_t log_find_locked(
    Log* log, int64_t offset, const Bound* bound, Found* found
) noexcept nogil:
    cdef int16_t error = NO_ERROR
    found.segment = NULL
    if not log.online:
        return KAFKA_STORAGE_ERROR
    if offset < log.log_start_offset or offset > log.log_end_offset:
        return OFFSET_OUT_OF_RANGE
    if offset < bound.offset:
        error = look_up_locked(log, offset, log_find_segment(log, offset), bound, found)
        if error == NO_ERROR:
            segment_add_reference(found.segment)
    return error


cdef int16_t next_segment(
    Log* log, Found* found, int64_t offset, const Bound* bound
) noexcept nogil:
    # Nothing at or above `offset` in this segment: on to the next one, if there is one.
    cdef int64_t base_offset = found.segment.base_offset
    cdef int16_t error = NO_ERROR
    cdef int32_t at
    cdef int replaced = 0
    if not lock_to_look_if(log, found.patience):
        segment_drop_reference(found.segment)
        found.segment = NULL
        return READ_WOULD_WAIT
    # One that was compacted meanwhile has another in its place, which may hold what others held.
    replaced = not log_has_segment(log, found.segment)
    segment_drop_reference(found.segment)
    found.segment = NULL
    at = log_find_segment(log, base_offset) + (0 if replaced else 1)
    if at < 0:
        at = 0
    if not log.online:
        error = KAFKA_STORAGE_ERROR
    elif at < log.segment_count:
        error = look_up_locked(log, offset, at, bound, found)
        if error == NO_ERROR:
            segment_add_reference(found.segment)
    unlock_log(log)
    return error


cdef int16_t error_of(const Scan* scan) noexcept nogil:
    # Of a scan that has ended at no batch. Damage is answered as such: a client would try again for
    # ever for a disk that does not answer.
    if scan.status == EAGAIN:
        return READ_WOULD_WAIT
    return KAFKA_STORAGE_ERROR if scan.status != 0 else CORRUPT_MESSAGE


cdef int16_t scan_for(
    Log* log, Found* found, int64_t offset, const Bound* bound
) noexcept nogil:
    # Makes `found` exact. Without the lock. The batch may be in a later segment, or not there.
    cdef Scan scan
    cdef int16_t error
    cdef int status
    while found.segment != NULL and (not found.exact or found.position >= found.limit):
        if found.position == IN_A_FILE:
            found.position = log_scan_start(log, found.segment, offset)
        if not found.exact and found.position >= found.limit:
            found.position = 0    # no index says that of an offset below the bound, unless it lies
        if found.position < found.limit:
            scan_begin(&scan, found.segment.fd, found.position, found.limit)
            scan.must_not_wait = found.patience < WAITS_FOR_DISK
            status = 1 if found.exact else scan_from_index(&scan, offset)
            if status == 1:
                status = scan_to_offset(&scan, offset)
            # A batch that goes on beyond the segment's end ends it, as in Apache Kafka.
            if status < 0 and not scan.torn:
                return error_of(&scan)
            if status == 1:
                found.exact = 1
                found.position = scan.position
                found.size_bytes = scan.header.size_bytes
                found.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
                return NO_ERROR
        error = next_segment(log, found, offset, bound)
        if error != NO_ERROR:
            return error
    return NO_ERROR


cdef void begin_scan(Scan* scan, const Found* found, const FileSlice* out) noexcept nogil:
    if out.is_copied and out.position == found.position:
        scan_begin_in_copy(scan, out, found.limit)
    else:
        scan_begin(scan, found.segment.fd, found.position, found.limit)


cdef void copy_to_room(const Found* found, int64_t length, FileSlice* out) noexcept nogil:
    # From an exact position, if that is in memory. Bytes that are there already are not read again.
    cdef int64_t here = out.length if out.is_copied and out.position == found.position else 0
    out.is_copied = 0
    if not found.is_old or out.room == NULL or not 0 < length <= COPIED_SLICE_BYTES_MAX:
        return
    out.fd = found.segment.fd
    out.position = found.position
    out.length = length
    out.is_copied = here >= length or files.pread_now(
        out.fd, out.room + here, <size_t>(length - here), out.position + here) == length - here


cdef int16_t measure(Found* found, const FileSlice* out) noexcept nogil:
    # The size of the batch at an exact position.
    cdef Scan scan
    begin_scan(&scan, found, out)
    scan.chunk_bytes_max = HEADER_BYTES
    scan.must_not_wait = found.patience < WAITS_FOR_DISK
    if scan_next(&scan) != 1:
        return error_of(&scan)
    found.size_bytes = scan.header.size_bytes
    found.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
    return NO_ERROR


cdef inline int may_be_empty(const Found* found) noexcept nogil:
    # A batch of a header alone has no records.
    if found.size_bytes == 0:
        return kb_load_int(&part_of(found.segment).may_hold_empty)
    return found.size_bytes == HEADER_BYTES


cdef int pass_empty_here(
    Found* found, const FileSlice* out, int32_t* passed, int16_t* error
) noexcept nogil:
    # 1: `found` is the first batch with records, or enough were passed. 0: there is none in this
    # segment; `found` is its last batch, or has no next offset.
    cdef Scan scan
    cdef int status
    begin_scan(&scan, found, out)
    scan.must_not_wait = found.patience < WAITS_FOR_DISK
    status = scan_next(&scan)
    while status == 1:
        found.position = scan.position
        found.size_bytes = scan.header.size_bytes
        found.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
        if scan.header.record_count > 0 or passed[0] == EMPTY_PASSED_MAX:
            return 1
        passed[0] += 1
        scan_advance(&scan)
        status = scan_next(&scan)
    if status < 0 and not scan.torn:
        error[0] = error_of(&scan)
    return 0


cdef int16_t pass_empty(
    Log* log, Found* found, int64_t offset, const Bound* bound, FileSlice* out
) noexcept nogil:
    # From an exact position to the first batch with records, in a later segment too. Without one
    # below the bound to the last batch: it brings the client to the bound.
    cdef Found last
    cdef int32_t passed = 0
    cdef int16_t error = NO_ERROR
    last.segment = NULL
    while not pass_empty_here(found, out, &passed, &error) and error == NO_ERROR:
        out.is_copied = 0         # it goes on in another segment
        if found.next_offset >= 0:
            if last.segment != NULL:
                segment_drop_reference(last.segment)
            last = found[0]
            segment_add_reference(last.segment)
            offset = last.next_offset
        found.position = found.limit
        error = scan_for(log, found, offset, bound)
        if error != NO_ERROR:
            break
        if found.segment == NULL:
            found[0] = last
            return NO_ERROR
    if last.segment != NULL:
        segment_drop_reference(last.segment)
    return error


cdef inline int64_t largest_of(Segment* segment) noexcept nogil:
    return kb_load_i64(&part_of(segment).largest_batch_bytes)


cdef int16_t cut(
    Found* found, int64_t max_bytes, int whole_first, FileSlice* out
) noexcept nogil:
    # The slice from an exact position. Its segment's reference goes to `out`, or is dropped.
    cdef int64_t length = found.limit - found.position
    cdef int16_t error = NO_ERROR
    if length > max_bytes:
        length = max_bytes if max_bytes > 0 else 0
        # This one's size matters only if some batch here is larger than the bytes that may be sent.
        if found.size_bytes == 0 and largest_of(found.segment) > max_bytes:
            error = measure(found, out)
        if error == NO_ERROR and found.size_bytes > max_bytes:
            length = found.size_bytes if whole_first else 0
    if error != NO_ERROR or length <= 0:
        segment_drop_reference(found.segment)
        return error
    out.segment = found.segment
    out.fd = found.segment.fd
    copy_to_room(found, length, out)
    out.position = found.position
    out.length = length
    return NO_ERROR


cdef inline int is_seen(const Found* found, const FileSlice* out) noexcept nogil:
    cdef int64_t end = min(out.position + out.length, found.unseen_end)
    return out.position >= end or found.seen_from <= out.position and end <= found.seen_to


cdef int16_t end_at_damage(Found* found, FileSlice* out) noexcept nogil:
    # The slice up to where no whole batch follows; empty if none begins it. An error only then, and
    # not if the batch that begins there goes on beyond the segment's end.
    cdef int64_t end = min(out.position + out.length, found.unseen_end)
    cdef Scan scan
    cdef int status = 1
    scan_begin_in_copy(&scan, out, found.limit)
    scan.must_not_wait = found.patience < WAITS_FOR_DISK
    if found.seen_from <= out.position < found.seen_to:
        scan.position = found.seen_to
    if found.patience < WAITS_FOR_DISK and end - scan.position > UNSEEN_AT_ONCE_MAX:
        return READ_WOULD_WAIT
    while scan.position < end and status == 1:
        status = scan_next(&scan)
        if status == 1:
            scan.chunk_bytes_max = (
                SCAN_CHUNK_BYTES if scan.header.size_bytes < SCAN_CHUNK_BYTES else HEADER_BYTES)
            scan_advance(&scan)
    if found.seen_from <= out.position <= found.seen_to:
        found.seen_to = max(found.seen_to, scan.position)
    else:
        found.seen_from = out.position
        found.seen_to = scan.position
    if status >= 0:
        return NO_ERROR
    if scan.status != 0:
        return error_of(&scan)
    out.length = scan.position - out.position
    return NO_ERROR if out.length > 0 or scan.torn else CORRUPT_MESSAGE


cdef void note_seen(Log* log, const Found* found, const FileSlice* out) noexcept nogil:
    cdef SegmentPart* part = part_of(out.segment)
    if not log_has_segment(log, out.segment):
        return
    part.seen_from = found.seen_from
    part.seen_to = found.seen_to


cdef inline int find_next(
    const Found* found, const FileSlice* out, Place* next_place
) noexcept nogil:
    if out.position + out.length >= found.limit:
        return 0                  # it is not in this segment, or at the bound
    next_place.offset = found.next_offset if found.size_bytes > 0 else -1
    next_place.position = out.position + found.size_bytes
    return find_next_place(out, found.limit, found.patience, next_place)


cdef void note_places(
    Log* log, const Found* found, int64_t offset, const FileSlice* out, int known,
    const Place* next_place
) noexcept nogil:
    # Where the next reader of the same offset finds it, and where the same reader goes on. In a
    # segment that was cut meanwhile another batch lies there.
    if not log_has_segment(log, out.segment):
        return
    if not known:
        handed_out_note(log, offset, out.segment.base_offset, out.position, found.size_bytes)
    if next_place != NULL:
        handed_out_note(
            log, next_place.offset, out.segment.base_offset, next_place.position, 0)


cdef int16_t slice_here(
    Log* log, Found* found, int64_t* offset, const Bound* bound, int64_t max_bytes,
    int whole_first, FileSlice* out
) noexcept nogil:
    cdef int16_t error = scan_for(log, found, offset[0], bound)
    out.is_copied = 0
    if error != NO_ERROR:
        if found.segment != NULL:
            segment_drop_reference(found.segment)
        return error
    if found.segment == NULL:
        return NO_ERROR
    copy_to_room(found, min(found.limit - found.position, max_bytes), out)
    if found.passes_empty and may_be_empty(found):
        error = pass_empty(log, found, offset[0], bound, out)
        if error != NO_ERROR and found.segment != NULL:
            segment_drop_reference(found.segment)
        if error != NO_ERROR or found.segment == NULL:
            return error
        offset[0] = found.next_offset - 1    # a follower finds the first one at the offset itself
    return cut(found, max_bytes, whole_first, out)


cdef int16_t log_slice(
    Log* log, Found* found, int64_t offset, const Bound* bound, int64_t max_bytes, int whole_first,
    FileSlice* out
) noexcept nogil:
    cdef int known = found.size_bytes > 0
    cdef Place next_place
    cdef int goes_on = 0
    cdef int was_seen = 1
    cdef int16_t error = slice_here(log, found, &offset, bound, max_bytes, whole_first, out)
    while error == NO_ERROR and out.segment != NULL and not is_seen(found, out):
        was_seen = 0
        error = end_at_damage(found, out)
        if error == NO_ERROR and out.length > 0:
            break
        if error != NO_ERROR:
            slice_release(out)
            return error
        found.segment = out.segment
        out.segment = NULL
        out.is_copied = 0
        found.position = found.limit     # what is left of the segment is no whole batch
        error = slice_here(log, found, &offset, bound, max_bytes, whole_first, out)
    if error != NO_ERROR or out.segment == NULL:
        slice_release(out)        # a copy may be there, and no slice
        return error
    if found.is_old:
        if not out.is_copied:
            look_whether_cold(log, out, found.limit, found.patience)
        goes_on = find_next(found, out, &next_place)
    known = known or found.size_bytes == 0
    if (goes_on or not known or not was_seen) and lock_to_look_if(log, found.patience):
        if goes_on or not known:
            note_places(log, found, offset, out, known, &next_place if goes_on else NULL)
            log.file_scans += 1
        if not was_seen:
            note_seen(log, found, out)
        unlock_log(log)
    return NO_ERROR


cdef int64_t log_readable_bytes_locked(
    Log* log, int64_t offset, const Bound* bound, int64_t max_bytes
) noexcept nogil:
    cdef Found found
    cdef int64_t total = 0
    cdef int32_t at
    cdef int16_t error
    found.patience = WAITS_FOR_LOCKS
    error = log_find_locked(log, offset, bound, &found)
    if error == READ_WOULD_WAIT:
        found.position = 0
    elif error != NO_ERROR or found.segment == NULL:
        return 0
    else:
        segment_drop_reference(found.segment)
    total = found.limit - found.position
    at = log_find_segment(log, offset) + 1
    while at < log.segment_count and total < max_bytes:
        total += bytes_below(log, at, bound)
        at += 1
    return min(max(total, <int64_t>0), max_bytes)


cdef int16_t log_bound_below_locked(
    Log* log, int64_t offset, Patience patience, Bound* out
) noexcept nogil:
    cdef Bound end = log_end_locked(log)
    cdef Found found
    cdef Scan scan
    cdef int16_t error
    if offset < log.log_start_offset:
        offset = log.log_start_offset
    found.patience = patience
    error = look_up_locked(log, offset, log_find_segment(log, offset), &end, &found)
    if error != NO_ERROR:
        return error
    if not found.exact:
        if found.position == IN_A_FILE:
            found.position = segment_scan_start(found.segment, offset)
        scan_begin(&scan, found.segment.fd, found.position, found.limit)
        scan.must_not_wait = patience < WAITS_FOR_DISK
        if scan_from_index(&scan, offset) < 0 or scan_to_offset(&scan, offset) < 0:
            return READ_WOULD_WAIT if scan.status == EAGAIN else KAFKA_STORAGE_ERROR
        found.position = scan.position
    out.offset = offset
    out.segment_base = found.segment.base_offset
    out.position = found.position
    return NO_ERROR


cdef int16_t log_place_of(Log* log, int64_t offset, Found* found) noexcept nogil:
    cdef Bound end
    cdef int16_t error
    found.segment = NULL
    found.patience = WAITS_FOR_DISK
    found.passes_empty = 0
    lock_to_look(log)
    if not log.online:            # closed since: it has no segments
        unlock_log(log)
        return KAFKA_STORAGE_ERROR
    end = log_end_locked(log)
    error = log_find_locked(log, offset, &end, found)
    unlock_log(log)
    if error == NO_ERROR and found.segment != NULL:
        error = scan_for(log, found, offset, &end)
    if error != NO_ERROR and found.segment != NULL:
        segment_drop_reference(found.segment)
        found.segment = NULL
    return error
