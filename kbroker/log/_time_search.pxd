# cython: language_level=3
"""Finding offsets by timestamp."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from kbroker.log._partition cimport Partition


cdef struct TimedOffset:
    int64_t offset                # -1: there is no such record
    int64_t timestamp_ms
    int32_t leader_epoch
    int8_t needs_python           # the codec of the batch at `offset` has no library here


# The first record at or behind `from_offset` and below the high watermark whose timestamp is not
# below the wanted one. 0 or a Kafka error code. Takes the lock.
cdef int16_t find_by_time(
    Partition* partition, int64_t timestamp_ms, int64_t from_offset, TimedOffset* out
) noexcept nogil

# The first record with the largest timestamp of the log.
cdef int16_t find_max_timestamp(Partition* partition, TimedOffset* out) noexcept nogil
