# cython: language_level=3
"""Reading whole segments when a log is opened."""

from libc.stdint cimport int32_t, int64_t

from kbroker.log.engine._types cimport Segment
from kbroker.log.engine._producer_state cimport ProducerTable


cdef struct Recovered:
    int status                    # 0 or an errno
    int64_t valid_bytes           # up to here every batch is whole and its CRC right
    int64_t next_offset
    int32_t last_leader_epoch     # of the last batch, -1 if there is none
    int64_t batches
    const char* reason            # why the scan ended before the end of the file, or NULL
    int torn                      # it ended in a batch that is longer than the rest
    int rebuilt                   # every batch was checked, and the indexes are new
    int has_gaps                  # then: records are missing, as where the cleaner was


# `recover`: reads every batch from the start, checks it, builds both indexes anew. Otherwise the
# segment is trusted: its end is found from the last index entry on, and its timestamps; it is read
# only where an index is missing or does not fit. The .log is not changed. 0 or an errno.
cdef int check_segment(
    Segment* segment, int recover, int64_t index_bytes, int64_t index_interval_bytes,
    Recovered* out) noexcept nogil

# Where the batches of a segment end of which that said a reason: the index entry from which it came
# may have led it into the midst of one, and a batch whose CRC is wrong is no end. 0 or an errno.
cdef int find_readable_end(
    Segment* segment, const Recovered* found, int64_t* end) noexcept nogil

# The first batch at or above `offset` with an epoch above `epoch`: 1, and both are set to its own;
# 0 if there is none before the end or the first damage, -1 and an errno if the file cannot be read.
cdef int find_newer_epoch(
    Segment* segment, int32_t* epoch, int64_t* offset, int* status) noexcept nogil

# Whether a transaction's marker may lie there, before the first damage. 0, too, with an errno if
# the file cannot be read.
cdef int has_marker_between(
    Segment* segment, int64_t from_offset, int64_t end_offset, int* status) noexcept nogil

# Cuts the file. 0 or an errno.
cdef int truncate_segment(Segment* segment, int64_t size_bytes) noexcept nogil

# Notes every batch of a producer at or after an offset, up to damage, and forgets transactions
# that ended below the high watermark; where a recovery has dropped it, the index of aborted
# transactions is written anew. 0 or an errno.
cdef int replay_producers(
    ProducerTable* table, Segment* segment, int64_t from_offset, int64_t high_watermark
) noexcept nogil
