# cython: language_level=3
"""The group append."""

from libc.stdint cimport int64_t

from kbroker.log._partition cimport Batch, Partition

# As partition_append says, with the lock held.
cdef void append_group_locked(Partition* partition, Batch* first, int64_t now_ms) noexcept nogil
