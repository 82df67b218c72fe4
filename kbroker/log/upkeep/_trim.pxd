# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.log.engine._storage cimport Log

# The start moves forward; an offset at or below it changes nothing.
cdef void log_move_start_locked(Log* log, int64_t offset) noexcept nogil
