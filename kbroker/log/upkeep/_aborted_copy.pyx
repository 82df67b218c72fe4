# cython: language_level=3
"""Entries of aborted transactions, for moves and cleanings, which rewrite segments.

A move copies the index of each segment. A cleaning puts those of a group one after the other, as
the markers are, without those whose markers go, and asks of each transactional batch whether it was
aborted: its records are no values of their keys. No GIL.
"""

from libc.errno cimport EIO, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memset

from kbroker.core._atomics cimport kb_load_int
from kbroker.log.engine._aborted_index cimport (
    AbortedEntry, AbortedIndex, aborted_publish, aborted_read, aborted_write)
from kbroker.log.engine._records cimport TRANSACTIONAL_BIT, Header
from kbroker.log.engine._segment cimport (
    part_of, segment_add_reference, segment_drop_reference)
from kbroker.log.engine._storage cimport Log, lock_to_look, unlock_log
from kbroker.log.engine._types cimport Segment

cdef enum:
    ENTRIES_AT_ONCE = 64


cdef struct Without:
    const int64_t* offsets        # of markers, ascending
    int32_t count
    int32_t at


cdef int32_t drop_without(Without* without, AbortedEntry* entries, int32_t count) noexcept nogil:
    # How many are left.
    cdef int32_t i, kept = 0
    for i in range(count):
        while (without.at < without.count
                and without.offsets[without.at] < entries[i].last_offset):
            without.at += 1
        if (without.at < without.count
                and without.offsets[without.at] == entries[i].last_offset):
            continue
        entries[kept] = entries[i]
        kept += 1
    return kept


cdef int copy_one(
    const AbortedIndex* source, AbortedIndex* target, const char* path, Without* without
) noexcept nogil:
    cdef AbortedEntry entries[ENTRIES_AT_ONCE]
    cdef int32_t at = 0, got, kept, count = source.count
    cdef int status
    while at < count:
        got = aborted_read(source, at, entries, count - at, 0)
        if got <= 0:
            return errno if got < 0 else EIO
        kept = drop_without(without, entries, got)
        if kept:
            status = aborted_write(target, path, entries, kept)
            if status != 0:
                return status
            aborted_publish(target, kept)
        at += got
    return 0


cdef int aborted_copy(
    Segment** segments, int32_t count, Segment* target, const int64_t* without,
    int32_t without_count
) noexcept nogil:
    cdef Without left_out = Without(without, without_count, 0)
    cdef int32_t at
    cdef int status = 0
    for at in range(count):
        status = status or copy_one(
            &part_of(segments[at]).aborted, &part_of(target).aborted,
            part_of(target).aborted_path, &left_out)
    return status


cdef int by_producer(const void* one, const void* other) noexcept nogil:
    cdef const AbortedEntry* a = <const AbortedEntry*>one
    cdef const AbortedEntry* b = <const AbortedEntry*>other
    if a.producer_id != b.producer_id:
        return 1 if a.producer_id > b.producer_id else -1
    return (a.last_offset > b.last_offset) - (a.last_offset < b.last_offset)


cdef int add_of_segment(AbortedSet* found, Segment* segment, int64_t below) noexcept nogil:
    cdef const AbortedIndex* index = &part_of(segment).aborted
    cdef AbortedEntry* larger
    cdef int32_t at = 0, got, i, count = index.count, kept
    larger = <AbortedEntry*>realloc(
        found.entries, <size_t>(found.count + count) * sizeof(AbortedEntry))
    if larger == NULL:
        return ENOMEM
    found.entries = larger
    while at < count:
        got = aborted_read(index, at, larger + found.count, count - at, 0)
        if got <= 0:
            return errno if got < 0 else EIO
        kept = 0
        for i in range(got):
            if larger[found.count + i].first_offset < below:
                larger[found.count + kept] = larger[found.count + i]
                kept += 1
        found.count += kept
        at += got
    return 0


cdef int aborted_set_open(AbortedSet* found, Log* log, int64_t below) noexcept nogil:
    cdef Segment* segment
    cdef int64_t after = -1
    cdef int32_t at
    cdef int status = 0
    memset(found, 0, sizeof(AbortedSet))
    if not kb_load_int(&log.has_aborted):
        return 0
    while status == 0:
        segment = NULL
        lock_to_look(log)
        for at in range(log.segment_count):
            if log.segments[at].base_offset > after and part_of(log.segments[at]).aborted.count:
                segment = log.segments[at]
                segment_add_reference(segment)
                break
        unlock_log(log)
        if segment == NULL:
            break
        after = segment.base_offset
        status = add_of_segment(found, segment, below)
        segment_drop_reference(segment)
    if status != 0:
        aborted_set_close(found)
    elif found.count:
        qsort(found.entries, <size_t>found.count, sizeof(AbortedEntry), by_producer)
    return status


cdef void aborted_set_close(AbortedSet* found) noexcept nogil:
    free(found.entries)
    found.entries = NULL
    found.count = 0


cdef int aborted_set_has(const AbortedSet* found, const Header* header) noexcept nogil:
    cdef const AbortedEntry* entry
    cdef int64_t producer_id = header.producer_id, offset = header.base_offset
    cdef int64_t low = 0, high = found.count, middle
    if not header.attributes & TRANSACTIONAL_BIT:
        return 0
    while low < high:
        middle = low + (high - low) / 2
        entry = &found.entries[middle]
        if entry.producer_id < producer_id or (
                entry.producer_id == producer_id and entry.last_offset < offset):
            low = middle + 1
        else:
            high = middle
    return (low < found.count and found.entries[low].producer_id == producer_id
            and found.entries[low].first_offset <= offset)
