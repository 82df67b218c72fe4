# cython: language_level=3
"""The last stable offset of a partition: where it moves, and where it is late.

`at` is the bound of a partition, and `is_late` (atomic) its mark; both are written under its lock.
"""

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Bound

# To the high watermark, or to where a transaction holds it. Where memory does not say where that
# lies it is late: it stays, or is below all bytes that it may not have.
cdef void last_stable_move_locked(
    Log* log, const Bound* high_watermark, Bound* at, int* is_late) noexcept nogil

# One that is late moves to where the disk says that it is. Takes the lock, and not while it waits
# for the disk. 1: it has moved, and reads may find more.
cdef int last_stable_find(
    Log* log, const Bound* high_watermark, Bound* at, int* is_late) noexcept nogil
