# cython: language_level=3
"""With which batch each producer of a log ends, for a cleaning."""

from libc.stdint cimport int16_t, int64_t

from kbroker._log cimport LocalLog
from kbroker.log.engine._records cimport Header


cdef struct KnownProducer:
    int64_t producer_id
    int64_t last_offset           # of its last batch; -1: a marker has given it another epoch
    int16_t epoch


cdef struct KnownProducers:
    KnownProducer* list           # by id
    int64_t count


# MemoryError.
cdef int known_producers_take(KnownProducers* known, LocalLog log) except -1
cdef void known_producers_free(KnownProducers* known) noexcept nogil
# Whether the producer's sequence, or where it has none its epoch, is known by the batch.
cdef int known_producers_end_with(
    const KnownProducers* known, const Header* header) noexcept nogil
