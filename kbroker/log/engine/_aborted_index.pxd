# cython: language_level=3
"""The aborted transactions whose markers are in a segment: its `.txnindex`."""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    ABORTED_ENTRY_BYTES = 34


cdef struct AbortedEntry:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset           # of the marker
    int64_t last_stable           # the first open offset then, or the one after it


cdef struct AbortedPlace:         # what a fetch has found; _aborted_places
    int64_t offset                # the markers of all entries before `first` are below it
    int64_t clear_to              # no aborted transaction has data from `offset` to here
    int32_t first


cdef struct AbortedPlaces:
    AbortedPlace places[4]        # `offset` 0 and `first` 0: all entries are to be read
    int next                      # to be replaced


cdef struct AbortedIndex:
    int fd                        # -1: there is no file
    int count                     # atomic; the entries that are in use
    int unsound                   # the file is not what was written, and has to be rebuilt
    int places_busy               # atomic; 1: a thread reads or writes the places
    AbortedPlaces* places         # NULL before the first fetch


# For reading, and for more entries; without a file there are none. 0 or an errno.
cdef int aborted_open(AbortedIndex* index, const char* path) noexcept nogil
# Looks at all entries: whether they are in the order of their markers, from the segment's base
# offset on, and all is there of each; else the index is `unsound`. `last_marker`: -1 without an
# entry. 0 or an errno.
cdef int aborted_check(
    AbortedIndex* index, int64_t base_offset, int64_t* last_marker) noexcept nogil
# It has no reader.
cdef void aborted_close(AbortedIndex* index) noexcept nogil

# Writes entries after those in use, which they are with aborted_publish(); the first one creates
# the file. 0 or an errno, and nothing has changed.
cdef int aborted_write(
    AbortedIndex* index, const char* path, const AbortedEntry* entries, int32_t count
) noexcept nogil
cdef void aborted_publish(AbortedIndex* index, int32_t count) noexcept nogil
# The entries that were written go. 0 or an errno: a later start may take it for the log's.
cdef int aborted_take_back(const AbortedIndex* index) noexcept nogil

# Drops the entries whose markers are at or above an offset; without any the file goes. It may be
# read meanwhile, and is not written any more. 0 or an errno.
cdef int aborted_cut(AbortedIndex* index, const char* path, int64_t end_offset) noexcept nogil
# Drops all. It has no reader. 0 or an errno.
cdef int aborted_reset(AbortedIndex* index, const char* path) noexcept nogil
# Drops all, and leaves a file that the next start takes for unsound, until entries are written.
# It has no reader. 0 or an errno.
cdef int aborted_spoil(AbortedIndex* index) noexcept nogil
cdef int aborted_sync(const AbortedIndex* index) noexcept nogil

# Reads entries from number `at` on, as many as `room`, or less: how many, -1 and an errno. 0: the
# file ends there. Needs no lock. EAGAIN: it would wait for the disk, and must not; EIO: what was
# read is no entry.
cdef int32_t aborted_read(
    const AbortedIndex* index, int32_t at, AbortedEntry* entries, int32_t room, int must_not_wait
) noexcept nogil
