# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport FileSlice, Patience

# Sets `slice.cold` of a slice older than the recent tail; its segment may be read up to `limit`.
cdef void look_whether_cold(
    Log* log, FileSlice* slice, int64_t limit, Patience patience) noexcept nogil
