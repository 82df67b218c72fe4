# cython: language_level=3
from kbroker.log._storage cimport Log


cdef enum FlushDepth:
    FLUSH_ROLLED = 0              # segments that are full, with their indexes
    FLUSH_RECORDS = 1             # and the active one's records
    FLUSH_WHOLE = 2               # and its indexes, as a clean stop leaves them
    FLUSH_SYNCED_VOLUME = 3       # as whole; the volume was synced after the last append

# Brings the log to the disk. Takes the lock, but not while the disk works. 0 or an errno; after a
# write that failed the log is offline.
cdef int log_flush(Log* log, FlushDepth depth) noexcept nogil
