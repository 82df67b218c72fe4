# cython: language_level=3
from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.log._partition cimport Partition
from kbroker.log._storage cimport EpochStart

cdef void epochs_replace(
    Partition* partition, EpochStart* fresh, int32_t count) noexcept nogil
cdef int16_t partition_epoch_end(
    Partition* partition, int32_t asked, int32_t* epoch, int64_t* end_offset) noexcept nogil
