# cython: language_level=3
"""What a log says of transactions: whether a batch may come, and what the last stable offset is."""

from libc.stdint cimport int16_t, int64_t

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Batch, Bound


cdef enum:
    TRANSACTION_OPEN = 0          # it may be appended now; also one that has been before
    TRANSACTION_NEEDS_GUARD = -1  # its coordinator is to be asked first, with the guard

# Before an append, of a transactional batch whose header has been read: one of these, or a Kafka
# error code. With the log's lock held, to look. A guard is let go of (guards_let_go) when the batch
# was appended, or will not be.
cdef int transaction_check_locked(
    Log* log, const Batch* batch, int64_t* guard) noexcept nogil


# The last stable offset of a high watermark: `bound` moves back from that to the first batch of
# what is open below it, or has a marker at or above it; never before the log's start. 0, or
# READ_WOULD_WAIT: memory does not say where that batch is, and the bound is at its offset, below
# all bytes of its segment. It is not looked for again before transaction_start_find() has.
cdef int16_t last_stable_locked(Log* log, Bound* bound) noexcept nogil

# Looks for that batch on the disk, and notes where it is. Takes the lock, and not while it waits
# for the disk. 0, or an error of the read.
cdef int16_t transaction_start_find(Log* log) noexcept nogil
