# cython: language_level=3
"""The marks of offsets that memory does not know, and how many there are in this process."""

# `is_late` (atomic) is written under the log's lock of its partition.
cdef void note_late(int* is_late, int now) noexcept nogil

cdef int late_offsets_count() noexcept nogil
