# cython: language_level=3
"""The group append."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.log._storage cimport Log
from kbroker.log._types cimport Batch

# As leader, with the lock held: every batch of the list with error 0 in one write (split where the
# kernel's list of buffers ends, and at a roll), with the next offsets and this epoch; duplicates
# answered with the first's offset; indexes, producers, the log's end. A failed write: 56 for the
# whole group. If `flush_due` stands behind it, nothing is answered before log_flush(FLUSH_RECORDS).
cdef void log_append_locked(
    Log* log, Batch* first, int32_t leader_epoch, int64_t now_ms) noexcept nogil

# For who refuses the rest of a group before or instead of an append.
cdef void refuse_batches(Batch* first, int16_t error, const char* message) noexcept nogil
cdef void refuse_batch(Batch* batch, int16_t error, const char* message) noexcept nogil
