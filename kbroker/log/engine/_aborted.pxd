# cython: language_level=3
"""The aborted transactions in the response to a read_committed fetch."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._arena cimport Arena
from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport FileSlice, Patience


cdef struct AbortedTransaction:
    int64_t producer_id
    int64_t first_offset

# Those that have data between `offset` and the end of the slice, which is below the last stable
# offset; there may be others among them. In the order of their markers, as Apache Kafka has them;
# the list is the arena's, NULL for none. Takes the log's lock. 0 or an error: 56, READ_WOULD_WAIT.
cdef int16_t aborted_collect(
    Log* log, int64_t offset, const FileSlice* slice, int64_t last_stable, Patience patience,
    Arena* arena, AbortedTransaction** list, int32_t* count) noexcept nogil
