# cython: language_level=3
"""Which aborted transactions lie in what a fetch returns, by the segments' indexes of them.

An index is in the order of the markers, so the first entry that matters is found by halving, or a
few entries after the one that an earlier fetch found (`_aborted_places`). From there on the entries
are read, over this segment and later ones, to the first whose last stable offset is at or beyond
the end of the data: what ends after that one begins after the data, too. The end is as near as the
index of offsets says, if that is true, or else the next segment, and at most the last stable
offset. Each segment is read with a reference to it and without the lock; no GIL.

A cleaning may replace segments between the read and this, and between two segments here. The first
entries are those of the slice's own segment, which has them whatever takes its place. The search
goes on by offset: a segment that took the place of several brings entries again, which are known by
their markers. Where the next offset is below the log's first segment, so is the data that was read:
it was deleted meanwhile, and the fetch is out of range.
"""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t
from libc.string cimport memcpy

from kbroker.core._arena cimport Arena, arena_take
from kbroker.core._atomics cimport kb_load_i64, kb_load_int
from kbroker.core._error_codes cimport KAFKA_STORAGE_ERROR, NO_ERROR, OFFSET_OUT_OF_RANGE
from kbroker.log.engine._aborted_index cimport (
    AbortedEntry, AbortedIndex, AbortedPlace, aborted_read)
from kbroker.log.engine._aborted_places cimport aborted_note_place, aborted_place
from kbroker.log.engine._index cimport (
    AFTER_VALUE, IndexEntry, index_in_memory, index_look_up, index_look_up_now)
from kbroker.log.engine._index_look cimport OF_OFFSETS, log_look_up
from kbroker.log.engine._records cimport HEADER_BYTES
from kbroker.log.engine._segment cimport (
    Scan, SegmentPart, part_of, scan_begin, scan_next, segment_add_reference,
    segment_drop_reference)
from kbroker.log.engine._storage cimport (
    Log, lock_to_look_if, log_find_segment, log_has_segment, unlock_log)
from kbroker.log.engine._types cimport (
    READ_WOULD_WAIT, WAITS_FOR_DISK, FileSlice, Patience, Segment)

cdef enum:
    ENTRIES_AT_ONCE = 64
    ENTRIES_AHEAD = 16            # where an earlier fetch began


cdef struct Collected:
    Arena* arena
    AbortedTransaction* list
    int32_t count
    int32_t room
    int64_t offset
    int64_t end                   # of the data
    int64_t last_marker           # of the entries that were read; -1: none were
    int64_t next_offset           # from which on segments are to be read; INT64_MAX: none are
    int is_complete               # what follows begins after the data
    int must_not_wait


cdef int16_t failed(int status) noexcept nogil:
    return READ_WOULD_WAIT if status == EAGAIN else KAFKA_STORAGE_ERROR


cdef int add(Collected* found, const AbortedEntry* entry) noexcept nogil:
    # 0 or -1: no memory.
    cdef AbortedTransaction* larger
    cdef int32_t room = found.room * 2 if found.room else 16
    if found.count == found.room:
        larger = <AbortedTransaction*>arena_take(
            found.arena, <size_t>room * sizeof(AbortedTransaction))
        if larger == NULL:
            return -1
        if found.count:
            memcpy(larger, found.list, <size_t>found.count * sizeof(AbortedTransaction))
        found.list = larger
        found.room = room
    found.list[found.count].producer_id = entry.producer_id
    found.list[found.count].first_offset = entry.first_offset
    found.count += 1
    return 0


cdef int16_t first_that_matters(
    const Collected* found, const AbortedIndex* index, int32_t low, int32_t high, int32_t* first
) noexcept nogil:
    # The first entry whose marker is at or above the offset, from `low` on.
    cdef AbortedEntry entry
    cdef int32_t middle, got
    while low < high:
        middle = low + (high - low) / 2
        got = aborted_read(index, middle, &entry, 1, found.must_not_wait)
        if got < 0:
            return failed(errno)
        if got == 1 and entry.last_offset < found.offset:
            low = middle + 1
        else:
            high = middle
    first[0] = low
    return NO_ERROR


cdef int16_t find_first(
    const Collected* found, AbortedIndex* index, int32_t count, const AbortedPlace* known,
    AbortedEntry* entries, int32_t* at, int32_t* got
) noexcept nogil:
    # The first entry that matters is at `at` or after it; `got` entries from there on were read.
    at[0] = min(known.first, count) if known != NULL else 0
    got[0] = 0
    if known != NULL and at[0] < count:
        got[0] = aborted_read(
            index, at[0], entries, min(count - at[0], <int32_t>ENTRIES_AHEAD),
            found.must_not_wait)
        if got[0] < 0:
            return failed(errno)
        if got[0] > 0 and entries[got[0] - 1].last_offset >= found.offset:
            return NO_ERROR
        at[0] += got[0]
        got[0] = 0
    if count - at[0] <= ENTRIES_AT_ONCE:
        return NO_ERROR
    return first_that_matters(found, index, at[0], count, at)


cdef int16_t collect_from(
    Collected* found, AbortedIndex* index, int32_t count, AbortedPlace* place,
    const AbortedPlace* known
) noexcept nogil:
    # Sets `place` to the first entry that matters, unless the reading fails.
    cdef AbortedEntry entries[ENTRIES_AT_ONCE]
    cdef int32_t at = 0, got = 0, i
    cdef int16_t error = find_first(found, index, count, known, entries, &at, &got)
    place.first = -1
    place.clear_to = -1
    place.offset = found.offset
    while error == NO_ERROR and at < count and not found.is_complete:
        if got == 0:
            got = aborted_read(index, at, entries, count - at, found.must_not_wait)
        if got < 0:
            return failed(errno)
        if got == 0:              # an entry that is in use is not there: it may be cut right now
            return KAFKA_STORAGE_ERROR
        for i in range(got):
            if place.first < 0 and entries[i].last_offset >= found.offset:
                place.first = at + i
                place.clear_to = min(entries[i].first_offset, entries[i].last_stable)
            if entries[i].last_offset <= found.last_marker:
                continue
            found.last_marker = entries[i].last_offset
            if (entries[i].last_offset >= found.offset and entries[i].first_offset < found.end
                    and add(found, &entries[i]) != 0):
                return KAFKA_STORAGE_ERROR
            if entries[i].last_stable >= found.end:
                found.is_complete = 1
                break
        at += got
        got = 0
    if place.first < 0:
        place.first = at
    return error


cdef int16_t collect_from_own(Collected* found, AbortedIndex* index) noexcept nogil:
    # From the index of the slice's segment, by the place where an earlier fetch left it.
    cdef AbortedPlace known, place
    cdef int32_t count = kb_load_int(&index.count)
    cdef int is_known = aborted_place(index, found.offset, &known)
    cdef int16_t error
    if is_known and found.end <= known.clear_to:
        found.is_complete = 1
        return NO_ERROR
    error = collect_from(found, index, count, &place, &known if is_known else NULL)
    if error == NO_ERROR and count:
        aborted_note_place(index, &place)
    return error


cdef int16_t end_by_entry(
    Collected* found, const FileSlice* slice, const IndexEntry* entry
) noexcept nogil:
    # If a batch begins and ends where an index says, which has no checksum, and was not written
    # here. An entry whose batch cannot be read does not count.
    cdef int64_t end = slice.segment.base_offset + entry.key
    cdef Scan scan
    if entry.value < part_of(slice.segment).unseen_end:
        scan_begin(&scan, slice.fd, entry.value, kb_load_i64(&slice.segment.size_bytes))
        scan.chunk_bytes_max = HEADER_BYTES
        scan.must_not_wait = found.must_not_wait
        if scan_next(&scan) != 1:
            return READ_WOULD_WAIT if scan.status == EAGAIN else NO_ERROR
        if scan.header.base_offset + scan.header.last_offset_delta != end:
            return NO_ERROR
    found.end = min(found.end, end)
    return NO_ERROR


cdef int16_t find_end(
    Log* log, const FileSlice* slice, Patience patience, Collected* found
) noexcept nogil:
    # By the index of the slice's segment; `found.end` is what it is without that.
    cdef SegmentPart* part = part_of(slice.segment)
    cdef int64_t target = slice.position + slice.length
    cdef IndexEntry entry
    cdef int is_known = 1
    entry.key = -1
    if patience == WAITS_FOR_DISK:
        entry = log_look_up(log, slice.segment, OF_OFFSETS, AFTER_VALUE, target)
    else:
        if not lock_to_look_if(log, patience):
            return READ_WOULD_WAIT
        if not log_has_segment(log, slice.segment):
            pass                  # its file's name may be another's
        elif index_in_memory(&part.offsets):
            entry = index_look_up(&part.offsets, part.offsets_path, AFTER_VALUE, target)
        else:
            is_known = index_look_up_now(
                &part.offsets, part.offsets_path, AFTER_VALUE, target, &entry)
        unlock_log(log)
    if not is_known:
        return READ_WOULD_WAIT
    return end_by_entry(found, slice, &entry) if entry.key >= 0 else NO_ERROR


cdef int16_t first_bounds(
    Log* log, const FileSlice* slice, Patience patience, Collected* found
) noexcept nogil:
    # Where the data ends and the search goes on, by the segments that the log has now.
    cdef int32_t after
    if not lock_to_look_if(log, patience):
        return READ_WOULD_WAIT
    after = log_find_segment(log, slice.segment.base_offset) + 1
    if after < log.segment_count:
        found.end = min(found.end, log.segments[after].base_offset)
    found.next_offset = found.offset
    if after > 0 and log.segments[after - 1] == slice.segment:
        found.next_offset = INT64_MAX
        if after < log.segment_count:
            found.next_offset = log.segments[after].base_offset
    unlock_log(log)
    return NO_ERROR


cdef int16_t next_segment(
    Log* log, Patience patience, Collected* found, Segment** out, int32_t* count
) noexcept nogil:
    # The first that has entries, from the next offset on; a reference, or NULL.
    cdef int32_t at, entries = 0
    cdef int16_t error
    out[0] = NULL
    if not lock_to_look_if(log, patience):
        return READ_WOULD_WAIT
    at = log_find_segment(log, found.next_offset)
    if at < 0:
        error = OFFSET_OUT_OF_RANGE if log.segment_count else KAFKA_STORAGE_ERROR
        unlock_log(log)
        return error
    while at < log.segment_count and out[0] == NULL:
        entries = part_of(log.segments[at]).aborted.count
        if entries:
            out[0] = log.segments[at]
            count[0] = entries
            segment_add_reference(out[0])
        at += 1
    found.next_offset = log.segments[at].base_offset if at < log.segment_count else INT64_MAX
    unlock_log(log)
    return NO_ERROR


cdef int16_t aborted_collect(
    Log* log, int64_t offset, const FileSlice* slice, int64_t last_stable, Patience patience,
    Arena* arena, AbortedTransaction** list, int32_t* count
) noexcept nogil:
    cdef Collected found
    cdef Segment* segment = NULL
    cdef AbortedPlace place
    cdef int32_t entries = 0
    cdef int16_t error
    list[0] = NULL
    count[0] = 0
    if slice.segment == NULL:
        return NO_ERROR if slice.length == 0 else KAFKA_STORAGE_ERROR
    if not kb_load_int(&log.has_aborted):
        return NO_ERROR
    found.arena = arena
    found.list = NULL
    found.count = 0
    found.room = 0
    found.offset = offset
    found.end = last_stable
    found.last_marker = -1
    found.is_complete = 0
    found.must_not_wait = patience != WAITS_FOR_DISK
    error = first_bounds(log, slice, patience, &found)
    if error == NO_ERROR:
        error = find_end(log, slice, patience, &found)
    if error == NO_ERROR:
        error = collect_from_own(&found, &part_of(slice.segment).aborted)
    while error == NO_ERROR and not found.is_complete and found.next_offset < INT64_MAX:
        error = next_segment(log, patience, &found, &segment, &entries)
        if segment != NULL:
            error = collect_from(&found, &part_of(segment).aborted, entries, &place, NULL)
            segment_drop_reference(segment)
    if error == NO_ERROR:
        list[0] = found.list
        count[0] = found.count
    return error
