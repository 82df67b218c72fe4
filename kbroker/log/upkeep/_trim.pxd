# cython: language_level=3
from libc.stdint cimport int32_t, int64_t

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Segment

# The start moves forward; an offset at or below it changes nothing.
cdef void log_move_start_locked(Log* log, int64_t offset) noexcept nogil
# The first segments leave the log. 0: there are not so many beside the active one, and the log is
# offline.
cdef int log_drop_first_locked(Log* log, int32_t count, Segment** dropped) noexcept nogil
