# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.log._partition cimport FileSlice, Partition

# Sets `slice.cold` of a slice behind the recent tail; its segment may be read up to `limit`.
cdef void look_whether_cold(
    Partition* partition, FileSlice* slice, int64_t limit) noexcept nogil
