# cython: language_level=3
"""The group append."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.log.engine._file_operations cimport iovec
from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Batch, Segment

# As leader, with the lock held: every batch of the list with error 0 in one write (split where the
# kernel's list of buffers ends, and at a roll), with the next offsets and this epoch; duplicates
# answered with the first's offset; indexes, producers, the log's end. A failed write: 56 for the
# whole group. If `flush_due` is set after it, nothing is answered before log_flush(FLUSH_RECORDS).
cdef void log_append_locked(
    Log* log, Batch* first, int32_t leader_epoch, int64_t now_ms) noexcept nogil

# For callers that refuse the rest of a group before or instead of an append.
cdef void refuse_batches(Batch* first, int16_t error, const char* message) noexcept nogil
cdef void refuse_batch(Batch* batch, int16_t error, const char* message) noexcept nogil

# Around a write: the entries of the aborted transactions that its markers end. 0 or an errno.
cdef int aborted_before_write(Log* log, Segment* segment) noexcept nogil
cdef void aborted_after_write(Log* log, Segment* segment, int is_written) noexcept nogil

# Whether a batch that would end with `last_offset` goes to a new segment, after the bytes that
# already wait to be written.
cdef int roll_is_due(
    Log* log, Segment* segment, int64_t batch_bytes, int64_t last_offset, int64_t max_timestamp_ms,
    int64_t pending_bytes, int64_t now_ms) noexcept nogil

# At the segment's end. 0 if every byte is in the file; else the file is as it was, or -1 if it
# could not be restored: its content is unknown.
cdef int write_out(
    Segment* segment, const iovec* vectors, int32_t count, int64_t size_bytes) noexcept nogil
