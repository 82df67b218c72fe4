# cython: language_level=3
"""Finding offsets by timestamp."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Bound


cdef struct TimedOffset:
    int64_t offset                # -1: there is no such record
    int64_t timestamp_ms
    int32_t leader_epoch
    int8_t needs_python           # the codec of the batch at `offset` has no library here


# The first record at or above `from_offset` and below the bound whose timestamp is not
# below the wanted one. 0 or a Kafka error code. Takes the lock.
cdef int16_t log_find_by_time(
    Log* log, const Bound* bound, int64_t timestamp_ms, int64_t from_offset, TimedOffset* out
) noexcept nogil

# Of the records below the bound, the first one with the largest timestamp. Takes the lock.
cdef int16_t log_find_max_timestamp(
    Log* log, const Bound* bound, TimedOffset* out) noexcept nogil
