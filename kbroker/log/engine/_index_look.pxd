# cython: language_level=3
"""A look into an index of a segment, which may be a file, without the log's lock held."""

from libc.stdint cimport int64_t

from kbroker.log.engine._index cimport IndexColumn, IndexEntry
from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Segment


cdef enum WhichIndex:
    OF_OFFSETS = 0
    OF_TIMES = 1


# As `index_look_up`. The caller has a reference of the segment. Takes the lock.
cdef IndexEntry log_look_up(
    Log* log, Segment* segment, WhichIndex which, IndexColumn column, int64_t target
) noexcept nogil

# As `segment_scan_start`, in the same way.
cdef int64_t log_scan_start(Log* log, Segment* segment, int64_t offset) noexcept nogil
