# cython: language_level=3
from libc.stdint cimport int32_t, int64_t

from kbroker.log.engine._storage cimport EpochStart, Log

cdef void epochs_replace(Log* log, EpochStart* fresh, int32_t count) noexcept nogil
# (epoch, end offset) of the largest epoch at or below the one asked; -1 and -1 if it is not known.
cdef void epoch_end_locked(
    Log* log, int32_t asked, int32_t* epoch, int64_t* end_offset) noexcept nogil
