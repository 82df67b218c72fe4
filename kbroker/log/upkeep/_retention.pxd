# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Segment


cdef struct Retention:
    # What a topic's `retention.ms` and `retention.bytes` say; below 0: no bound.
    int64_t age_ms
    int64_t size_bytes

# The newest record's time; of a segment without timestamps that of its file; -1: it is not known.
cdef int64_t segment_newest_ms(Segment* segment) noexcept nogil

# Where the log has to begin by them: the end of the last segment that may go; its start as it is
# where none may. Nothing at or above the high watermark goes.
cdef int64_t retained_from_locked(
    Log* log, const Retention* retention, int64_t high_watermark, int64_t now_ms) noexcept nogil
