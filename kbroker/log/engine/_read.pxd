# cython: language_level=3
"""Finding bytes by offset, up to a bound."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._error_codes cimport NO_ERROR
from kbroker.log.engine._storage cimport Log, log_end_locked
from kbroker.log.engine._types cimport Bound, FileSlice, Patience, Segment


cdef struct Found:
    Patience patience             # in: what finding it may wait for
    int passes_empty              # in: goes on after batches without records
    Segment* segment              # one reference, or NULL: nothing to read
    int64_t position              # of the batch, or where to begin to scan for it; or IN_A_FILE
    int64_t size_bytes            # of the batch; 0 if not known
    int64_t limit                 # read no further: the bound, or the segment's end
    int exact                     # `position` is the batch's own
    int is_old                    # it was not appended of late
    int64_t next_offset           # the one after that batch; -1 if not known
    int64_t unseen_end            # as the segment's part has them
    int64_t seen_from
    int64_t seen_to


cdef enum:
    IN_A_FILE = -1                # the position: an index knows it that is not in memory

# Where `offset` is to be looked for, below the bound; with the lock held. 0 or an error: 1 out of
# range, 56 offline, READ_WOULD_WAIT where an index would be asked that may not be.
cdef int16_t log_find_locked(
    Log* log, int64_t offset, const Bound* bound, Found* found) noexcept nogil

# What was found as a slice from the start of the batch that holds `offset`, at most max_bytes long
# (cut anywhere, as Kafka does), except that with `whole_first` a first batch larger than that is
# given whole, and without it a first batch that would be cut gives an empty slice. Where that batch
# has no records, and `passes_empty`, it starts at the first one after it that has some; if all up
# to the bound are empty, at the last of them. Takes the lock, and over the found segment. 0 or an
# error: 2 damage, 56 storage, READ_WOULD_WAIT.
cdef int16_t log_slice(
    Log* log, Found* found, int64_t offset, const Bound* bound, int64_t max_bytes, int whole_first,
    FileSlice* out) noexcept nogil

# Bytes between `offset`'s batch and the bound, capped at max_bytes, without waiting for the disk;
# with the lock held. Where only the disk knows the batch's place, those of its segment before it,
# too.
cdef int64_t log_readable_bytes_locked(
    Log* log, int64_t offset, const Bound* bound, int64_t max_bytes) noexcept nogil

# Of one segment, how much lies below a bound.
cdef int64_t bytes_below(const Log* log, int32_t at, const Bound* bound) noexcept nogil

# The bound at an offset: where the batch that holds it begins, or the log ends; never before the
# start. With the lock held; 0, 56, or READ_WOULD_WAIT.
cdef inline int16_t log_bound_locked(
    Log* log, int64_t offset, Patience patience, Bound* out
) noexcept nogil:
    if offset < log.log_end_offset:
        return log_bound_below_locked(log, offset, patience, out)
    out[0] = log_end_locked(log)
    return NO_ERROR


cdef int16_t log_bound_below_locked(
    Log* log, int64_t offset, Patience patience, Bound* out) noexcept nogil

# The same without the lock, which it takes to begin with: an offset below the log's end. 0 or an
# error; `found.segment` has a reference then, or is NULL where there is no such batch.
cdef int16_t log_place_of(Log* log, int64_t offset, Found* found) noexcept nogil
