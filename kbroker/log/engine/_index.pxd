# cython: language_level=3
"""A segment's sparse indexes: offsets to positions, timestamps to offsets."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.core._atomics cimport kb_load_ptr

cdef enum:
    OFFSET_ENTRY_BYTES = 8        # relative offset, position
    TIME_ENTRY_BYTES = 12         # timestamp, relative offset


cdef struct Index:
    uint8_t* map                  # atomic; NULL: read only, from the file
    int64_t map_bytes
    int64_t allocated_bytes       # of the file, really there: a write below it cannot lack space
    int32_t entry_bytes
    int32_t entries
    int32_t entries_max           # 0: read only
    int torn                      # its file was not there, or no whole number of entries


# Every function answers 0 or an errno; `path` is the index's file.

# Makes the file large (sparse) and maps it for writing, keeping the entries. Blocks for more come
# with index_reserve. Others may look meanwhile: their readings change with the map alone.
cdef int index_open_writable(
    Index* index, const char* path, int64_t capacity_bytes) noexcept nogil

# Notes how many entries an index has; who looks reads them from the file. Without a file: none.
cdef int index_open_readable(Index* index, const char* path, int32_t entry_bytes) noexcept nogil

# Space for so many more entries, on disk as well, or as many as the capacity leaves. Answers ENOSPC
# before anything is written.
cdef inline int index_reserve(Index* index, const char* path, int32_t entries) noexcept nogil:
    if (index.map != NULL
            and <int64_t>(index.entries + entries) * index.entry_bytes <= index.allocated_bytes):
        return 0
    return index_extend(index, path)


cdef int index_extend(Index* index, const char* path) noexcept nogil

# Unmaps, cuts the file to its entries; the index can be read afterwards, not written.
cdef int index_trim(Index* index, const char* path) noexcept nogil
# The two halves of that: out of memory, 1 where the file is longer than its entries; and the file.
cdef int index_end(Index* index) noexcept nogil
cdef int index_shorten(const Index* index, const char* path) noexcept nogil

# The place of the position in an entry of offsets, and of the relative offset in one of times.
cdef enum:
    AT_POSITION = 4
    AT_RELATIVE_OFFSET = 8

# Keeps the entries whose number there is below `limit`; the index can be read afterwards, not
# written.
cdef int index_cut(Index* index, const char* path, int32_t at, int64_t limit) noexcept nogil

cdef void index_close(Index* index) noexcept nogil

# `index_reserve` has been asked, for both of these. 0: the index cannot be trusted, and is as it
# was; that is counted and reported, and the caller takes its log offline.
cdef int offset_index_append(
    Index* index, const char* path, int32_t relative, int32_t position) noexcept nogil
# Adds nothing unless the timestamp is newer than the last entry's.
cdef int time_index_append(
    Index* index, const char* path, int64_t timestamp_ms, int32_t relative) noexcept nogil

cdef struct IndexEntry:
    int64_t key                   # a relative offset, or a timestamp; -1: there is no such entry
    int32_t value                 # a position, or a relative offset; then 0

cdef enum IndexColumn:
    BY_KEY = 0
    BY_VALUE = 1
    AFTER_VALUE = 2               # the first entry whose value is at or above the target

# Whether a look into it reads no file.
cdef inline int index_in_memory(const Index* index) noexcept nogil:
    return index.entries == 0 or kb_load_ptr(<void**>&index.map) != NULL

# The last entry whose number in that column is at or below the target, but for AFTER_VALUE. `path`
# is its file, which is opened for the look where it is not mapped. What cannot be read counts as
# empty.
cdef IndexEntry index_look_up(
    const Index* index, const char* path, IndexColumn column, int64_t target) noexcept nogil
# The same without waiting for the disk: False where that would be, or cannot be said.
cdef int index_look_up_now(
    const Index* index, const char* path, IndexColumn column, int64_t target, IndexEntry* found
) noexcept nogil

# `fits`: the file was there and whole, and its last `checked` entries rise and stay inside the
# segment: below `size_bytes`, or below `relative_end`.
cdef int offset_index_check(
    const Index* index, const char* path, int64_t size_bytes, int32_t checked, int* fits
) noexcept nogil
# And the last entry, if there is one.
cdef int time_index_check(
    const Index* index, const char* path, int32_t checked, int* fits,
    int64_t* last_timestamp_ms, int32_t* last_relative) noexcept nogil
