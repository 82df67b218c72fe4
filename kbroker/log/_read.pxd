# cython: language_level=3
"""Finding bytes by offset."""

from libc.stdint cimport int16_t, int64_t

from kbroker.log._partition cimport FileSlice, Partition, Segment
from kbroker.log._storage cimport Log


# As partition_read and partition_readable_bytes say. They take the lock themselves.
cdef int16_t read_slice(
    Partition* partition, int64_t offset, int64_t max_bytes, int whole_first, int read_committed,
    int may_wait, FileSlice* out) noexcept nogil
cdef int64_t readable_bytes(
    Partition* partition, int64_t offset, int64_t max_bytes, int read_committed) noexcept nogil

# The same with the lock held.
cdef int64_t readable_bytes_locked(
    Partition* partition, int64_t offset, int64_t max_bytes, int read_committed) noexcept nogil

# Of one segment, how much lies below the high watermark; with the lock held.
cdef int64_t visible_bytes(const Log* log, Segment* segment) noexcept nogil

# The high watermark (and the last stable offset with it) moves to `offset`; with the lock held.
cdef int16_t set_high_watermark_locked(Partition* partition, int64_t offset) noexcept nogil
