# cython: language_level=3
from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Segment


cdef enum FlushDepth:
    FLUSH_ROLLED = 0              # segments that are full, with their indexes
    FLUSH_RECORDS = 1             # and the active one's records
    FLUSH_WHOLE = 2               # and its indexes, as a clean stop leaves them
    FLUSH_SYNCED_VOLUME = 3       # as whole; the volume was synced after the last append

# Brings the log to the disk. Takes the lock, but not while the disk works. 0 or an errno; after a
# write that failed the log is offline.
cdef int log_flush(Log* log, FlushDepth depth) noexcept nogil

# Brings one segment's records to the disk beside whatever flushes the log, by the same rules. 0 or
# an errno; then the log is offline.
cdef int log_sync_segment(Log* log, Segment* segment) noexcept nogil
