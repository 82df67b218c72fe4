# cython: language_level=3
"""The batches of some segments, one after the other, each whole and checked."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.log.engine._records cimport Header
from kbroker.log.engine._types cimport Segment
from kbroker.log.upkeep._buffer cimport Buffer

# The result of a step of the cleaner.
cdef enum Step:
    STEP_DONE = 0
    STEP_MORE = 1                 # there is more to do
    STEP_FULL = 2                 # of the map of keys: no more
    STEP_UNPACK = 3               # Python has to: the batch is at hand
    STEP_PACK = 4                 # Python has to: the batch was made
    STEP_DAMAGED = -1             # `Trouble.damage` says how
    STEP_FAILED = -2              # `Trouble.status` says how


cdef struct Trouble:
    int status                    # an errno
    const char* damage            # static text


cdef struct BatchSource:
    Segment** segments            # the caller's, with a reference to each
    const int64_t* sizes          # how many bytes of each are read
    int32_t at                    # which is read
    int32_t end                   # after the last one
    int64_t position              # of the batch at hand
    Header header                 # of it
    const uint8_t* batch          # all of it; until the next call
    Buffer bytes                  # of the file, from `bytes_position` on
    int32_t bytes_at
    int64_t bytes_position
    int whole_header              # of the batch at hand, which may be damaged after it

cdef void source_begin(BatchSource* source, int32_t at, int32_t end) noexcept nogil
# STEP_MORE: there is a batch at hand, the same until source_advance; STEP_DONE: there is none.
cdef Step source_next(BatchSource* source, Trouble* trouble) noexcept nogil
cdef void source_advance(BatchSource* source) noexcept nogil
# Whether the batch at hand is the last one.
cdef int source_is_at_last(const BatchSource* source) noexcept nogil
cdef void source_close(BatchSource* source) noexcept nogil
