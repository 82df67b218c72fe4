# cython: language_level=3
"""Entries of aborted transactions that follow their markers into another segment."""

from libc.stdint cimport int32_t, int64_t

from kbroker.log.engine._aborted_index cimport AbortedEntry
from kbroker.log.engine._records cimport Header
from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Segment

# Appends the entries of segments to those of another, which no fetch reads yet, but for those of
# `without_count` markers, whose offsets are ascending. 0 or an errno.
cdef int aborted_copy(
    Segment** segments, int32_t count, Segment* target, const int64_t* without,
    int32_t without_count) noexcept nogil


cdef struct AbortedSet:
    AbortedEntry* entries         # by producer id, then by marker
    int64_t count

# Those of a log that began below an offset: what lies there and is aborted, where the last stable
# offset is at or above it. 0 or an errno. Takes the log's lock; no other is held.
cdef int aborted_set_open(AbortedSet* found, Log* log, int64_t below) noexcept nogil
cdef void aborted_set_close(AbortedSet* found) noexcept nogil
# Whether a batch is of a transaction that was aborted.
cdef int aborted_set_has(const AbortedSet* found, const Header* header) noexcept nogil
