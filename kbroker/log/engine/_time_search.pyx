# cython: language_level=3
"""From a timestamp to an offset, exact to the record, also inside compressed batches.

Timestamps are the producers' and need not rise. What holds: a segment knows its largest one, and
every entry of its time index is the largest so far with the last offset of the batch that brought
it. So a segment whose largest is below the wanted one is passed over; in the first other one
nothing before the index entry at or below the wanted timestamp can match; from there batches are
taken by their header's largest timestamp, and in the first that reaches it the records are walked.

The record with the largest timestamp is mostly the newest one, which followers may not have yet: it
is looked for below the bound, so that an append beside the search hides no older one.

For ListOffsets, from Python. The log's lock is held to pick a segment, not while its files are
read. No GIL.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport INT64_MIN, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from kbroker.core._atomics cimport kb_load_i64
from kbroker.core._error_codes cimport CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, NO_ERROR
from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._index cimport BY_KEY, BY_VALUE, IndexEntry
from kbroker.log.engine._index_look cimport OF_TIMES, log_look_up, log_scan_start
from kbroker.log.engine._read cimport bytes_below
from kbroker.log.engine._records cimport (
    CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME_BIT, Rules, Walk, records_walk, rules_none)
from kbroker.log.engine._segment cimport (
    Scan, SegmentPart, part_of, scan_advance, scan_begin, scan_from_index, scan_next,
    scan_to_offset, segment_add_reference, segment_drop_reference)
from kbroker.log.engine._storage cimport (
    Log, lock_to_look, log_find_segment, log_has_segment, unlock_log)
from kbroker.log.engine._types cimport Bound, Segment


cdef struct Candidate:
    Segment* segment              # one reference, or NULL: no more
    int64_t position
    int64_t limit
    int64_t offset                # that the position is of
    int64_t entry_offset          # of the time index: up to this offset no timestamp is larger
    int64_t entry_ms              # than this one, which the batch there has; -1: no entry


cdef int16_t read_records(const Scan* scan, uint8_t** records) noexcept nogil:
    # The records after the header of the scan's batch; the caller frees them.
    cdef int64_t length = scan.header.size_bytes - HEADER_BYTES
    cdef int64_t total = 0, got
    records[0] = <uint8_t*>malloc(<size_t>(length + 1))
    if records[0] == NULL:
        return KAFKA_STORAGE_ERROR
    while total < length:
        got = files.pread(
            scan.fd, records[0] + total, <size_t>(length - total),
            scan.position + HEADER_BYTES + total)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            free(records[0])
            return KAFKA_STORAGE_ERROR
        total += got
    return NO_ERROR


cdef int16_t walk_batch(
    const Scan* scan, const Rules* rules, Walk* walk, int* missing
) noexcept nogil:
    cdef uint8_t* records = NULL
    cdef int16_t error = read_records(scan, &records)
    if error != NO_ERROR:
        return error
    missing[0] = records_walk(
        records, scan.header.size_bytes - HEADER_BYTES, scan.header.attributes & CODEC_MASK,
        scan.header.record_count, scan.header.base_timestamp_ms, rules, walk)
    free(records)
    return CORRUPT_MESSAGE if walk.error != NO_ERROR and not missing[0] else NO_ERROR


cdef int16_t look_into_batch(
    const Scan* scan, int64_t timestamp_ms, int64_t from_offset, TimedOffset* out
) noexcept nogil:
    # Sets out.offset if a record of this batch matches, or if Python has to look.
    cdef Rules rules
    cdef Walk walk
    cdef int missing = 0
    cdef int16_t error
    cdef int64_t first = from_offset - scan.header.base_offset
    # Of the header's own timestamp, all records; one that was compacted may lack the first of them.
    cdef int append_time = scan.header.attributes & LOG_APPEND_TIME_BIT
    if scan.header.record_count == 0:
        return NO_ERROR
    if append_time and scan.header.record_count == scan.header.last_offset_delta + 1:
        out.offset = scan.header.base_offset if first < 0 else from_offset
        out.timestamp_ms = scan.header.max_timestamp_ms
        out.leader_epoch = scan.header.leader_epoch
        return NO_ERROR
    rules_none(&rules)
    rules.gaps = 1
    rules.wanted_timestamp_ms = INT64_MIN if append_time else timestamp_ms
    rules.wanted_delta_min = 0 if first < 0 else <int32_t>first
    error = walk_batch(scan, &rules, &walk, &missing)
    if error == NO_ERROR and missing:
        out.offset = scan.header.base_offset
        out.needs_python = 1
    elif error == NO_ERROR and walk.found_delta >= 0:
        out.offset = scan.header.base_offset + walk.found_delta
        out.timestamp_ms = (
            scan.header.max_timestamp_ms if append_time else walk.found_timestamp_ms)
        out.leader_epoch = scan.header.leader_epoch
    return error


# --- By time --------------------------------------------------------------------------------------

cdef int16_t next_candidate(
    Log* log, const Bound* bound, int64_t timestamp_ms, int64_t from_offset, int64_t after_base,
    Candidate* out
) noexcept nogil:
    # The first segment after `after_base` that may hold a match, and where in it to begin.
    cdef IndexEntry entry
    cdef int16_t error = NO_ERROR
    cdef int32_t at = 0
    out.segment = NULL
    lock_to_look(log)
    if not log.online:
        error = KAFKA_STORAGE_ERROR
    else:
        at = log_find_segment(log, from_offset)
        at = 0 if at < 0 else at
        while at < log.segment_count and (
                log.segments[at].base_offset <= after_base
                or part_of(log.segments[at]).max_timestamp_ms < timestamp_ms):
            at += 1
        if at < log.segment_count:
            out.segment = log.segments[at]
            segment_add_reference(out.segment)
            out.limit = bytes_below(log, at, bound)
    unlock_log(log)
    if out.segment == NULL:
        return error
    entry = log_look_up(log, out.segment, OF_TIMES, BY_KEY, timestamp_ms)
    out.entry_offset = out.segment.base_offset + entry.value
    out.entry_ms = entry.key if out.entry_offset > from_offset else -1
    out.offset = from_offset if out.entry_ms < 0 else out.entry_offset
    out.position = log_scan_start(log, out.segment, out.offset)
    return NO_ERROR


cdef int still_there(Log* log, Segment* segment) noexcept nogil:
    cdef int found
    lock_to_look(log)
    found = log_has_segment(log, segment)
    unlock_log(log)
    return found


cdef inline int16_t error_of(const Scan* scan, int found) noexcept nogil:
    if found == 0 or scan.torn:   # as a read takes it
        return NO_ERROR
    return KAFKA_STORAGE_ERROR if scan.status != 0 else CORRUPT_MESSAGE


cdef int begin_at_entry(Scan* scan, const Candidate* candidate) noexcept nogil:
    # Goes to the batch of the time index's entry, which has no checksum; 0: it is not as it says.
    return (
        scan_to_offset(scan, candidate.entry_offset) == 1
        and scan.header.base_offset <= candidate.entry_offset
        and scan.header.max_timestamp_ms == candidate.entry_ms)


cdef int16_t scan_segment(
    const Candidate* candidate, int64_t timestamp_ms, int64_t from_offset, TimedOffset* out
) noexcept nogil:
    cdef Scan scan
    cdef int16_t error = NO_ERROR
    cdef int found
    scan_begin(
        &scan, candidate.segment.fd, candidate.position,
        kb_load_i64(&candidate.segment.size_bytes))
    found = scan_from_index(&scan, candidate.offset)
    if found == 1 and candidate.entry_ms >= 0 and not begin_at_entry(&scan, candidate):
        if scan.status != 0:      # whether the index says the truth is not known
            return KAFKA_STORAGE_ERROR
        scan.position = 0
    scan.limit = candidate.limit
    if found >= 0 or scan.status == 0:
        found = scan_to_offset(&scan, from_offset)
    while found == 1:
        if scan.header.max_timestamp_ms >= timestamp_ms:
            error = look_into_batch(&scan, timestamp_ms, from_offset, out)
            if error != NO_ERROR or out.offset >= 0:
                return error
        scan_advance(&scan)
        found = scan_next(&scan)
    return error_of(&scan, found)


cdef inline void nothing(TimedOffset* out) noexcept nogil:
    out.offset = -1
    out.timestamp_ms = -1
    out.leader_epoch = -1
    out.needs_python = 0


cdef int16_t log_find_by_time(
    Log* log, const Bound* bound, int64_t timestamp_ms, int64_t from_offset, TimedOffset* out
) noexcept nogil:
    cdef Candidate candidate
    cdef int64_t after_base = -1
    cdef int16_t error = NO_ERROR
    nothing(out)
    lock_to_look(log)
    if not log.online:
        error = KAFKA_STORAGE_ERROR
    if from_offset < log.log_start_offset:
        from_offset = log.log_start_offset
    unlock_log(log)
    while error == NO_ERROR and out.offset < 0:
        error = next_candidate(log, bound, timestamp_ms, from_offset, after_base, &candidate)
        if candidate.segment == NULL:
            break
        after_base = candidate.segment.base_offset
        error = scan_segment(&candidate, timestamp_ms, from_offset, out)
        if not still_there(log, candidate.segment):
            after_base = -1       # one that was compacted meanwhile may hold what others held
        segment_drop_reference(candidate.segment)
    return error


# --- The largest ----------------------------------------------------------------------------------

cdef struct Largest:
    int64_t timestamp_ms          # -1: no batch yet
    int64_t batch_end             # the last offset of the first batch that has it


cdef void pick_segments_locked(
    Log* log, const Bound* bound, Largest* largest, Candidate* whole, Candidate* parted
) noexcept nogil:
    # `whole`: the segment with the largest timestamp among those whose largest lies below the
    # bound. `parted`: the one whose largest lies above it.
    cdef Segment* segment
    cdef SegmentPart* part
    cdef int32_t at, whole_at = 0, parted_at = 0
    for at in range(log.segment_count):
        segment = log.segments[at]
        part = part_of(segment)
        if segment.base_offset > bound.segment_base:
            break
        if segment.base_offset == bound.segment_base and part.max_timestamp_offset >= bound.offset:
            parted.segment = segment
            parted_at = at
        elif part.max_timestamp_ms > largest.timestamp_ms:
            whole.segment = segment
            whole_at = at
            largest.timestamp_ms = part.max_timestamp_ms
            largest.batch_end = part.max_timestamp_offset
    if parted.segment != NULL:
        segment_add_reference(parted.segment)
        parted.limit = bytes_below(log, parted_at, bound)
    if whole.segment != NULL:
        segment_add_reference(whole.segment)
        whole.limit = bytes_below(log, whole_at, bound)


cdef void find_beginnings(
    Log* log, const Bound* bound, const Largest* largest, Candidate* whole, Candidate* parted
) noexcept nogil:
    # Where in them to begin. The last entry of a time index below the bound is the largest up to
    # there.
    cdef int64_t base_offset
    if parted.segment != NULL:
        base_offset = parted.segment.base_offset
        parted.offset = base_offset + log_look_up(
            log, parted.segment, OF_TIMES, BY_VALUE, bound.offset - base_offset - 1).value
        parted.position = log_scan_start(log, parted.segment, parted.offset)
    if whole.segment != NULL:
        whole.position = log_scan_start(log, whole.segment, largest.batch_end)


cdef int16_t scan_for_largest(Candidate* parted, Largest* largest, Candidate* best) noexcept nogil:
    # `best` takes the place and the reference of `parted` if a batch of it is later.
    cdef Scan scan
    cdef int64_t position = -1
    cdef int found
    scan_begin(&scan, parted.segment.fd, parted.position, parted.limit)
    found = scan_from_index(&scan, parted.offset)
    while found == 1:
        if scan.header.record_count > 0 and scan.header.max_timestamp_ms > largest.timestamp_ms:
            largest.timestamp_ms = scan.header.max_timestamp_ms
            largest.batch_end = scan.header.base_offset + scan.header.last_offset_delta
            position = scan.position
        scan_advance(&scan)
        found = scan_next(&scan)
    if position >= 0:
        parted.segment, best.segment = best.segment, parted.segment
        best.position = position
        best.limit = parted.limit
    if parted.segment != NULL:
        segment_drop_reference(parted.segment)
    return error_of(&scan, found)


cdef int16_t log_find_max_timestamp(
    Log* log, const Bound* bound, TimedOffset* out
) noexcept nogil:
    cdef Candidate best, parted
    cdef Largest largest
    cdef Scan scan
    cdef Rules rules
    cdef Walk walk
    cdef int missing = 0
    cdef int found
    cdef int16_t error = NO_ERROR
    nothing(out)
    best.segment = parted.segment = NULL
    best.position = best.limit = 0
    largest.timestamp_ms = largest.batch_end = -1
    lock_to_look(log)
    if not log.online:
        error = KAFKA_STORAGE_ERROR
    else:
        pick_segments_locked(log, bound, &largest, &best, &parted)
    unlock_log(log)
    if error != NO_ERROR:
        return error
    find_beginnings(log, bound, &largest, &best, &parted)
    if parted.segment != NULL:
        error = scan_for_largest(&parted, &largest, &best)
    if best.segment == NULL:
        return error
    scan_begin(&scan, best.segment.fd, best.position, best.limit)
    found = scan_from_index(&scan, largest.batch_end)
    if found == 1:
        found = scan_to_offset(&scan, largest.batch_end)
    if error == NO_ERROR and found != 1:
        error = KAFKA_STORAGE_ERROR if scan.status != 0 else CORRUPT_MESSAGE
    if error == NO_ERROR:
        rules_none(&rules)
        rules.gaps = 1
        out.timestamp_ms = scan.header.max_timestamp_ms
        out.leader_epoch = scan.header.leader_epoch
        out.offset = scan.header.base_offset
        if not scan.header.attributes & LOG_APPEND_TIME_BIT:
            error = walk_batch(&scan, &rules, &walk, &missing)
            out.needs_python = missing
            if error == NO_ERROR and not missing and walk.max_timestamp_delta >= 0:
                out.offset += walk.max_timestamp_delta
                out.timestamp_ms = walk.max_timestamp_ms
    segment_drop_reference(best.segment)
    return error
