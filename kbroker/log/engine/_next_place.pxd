# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.log.engine._types cimport FileSlice, Patience


cdef struct Place:
    int64_t offset                # the next read's; -1: not known
    int64_t position              # of the batch that it begins with

# Where the first batch that is not whole in a short slice begins. In: the place after its first
# batch, if that is known. 0: it is not known without much reading. `limit`: of its segment.
cdef int find_next_place(
    const FileSlice* slice, int64_t limit, Patience patience, Place* place) noexcept nogil
