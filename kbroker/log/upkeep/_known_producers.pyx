# cython: language_level=3
"""The last batch of each producer of a log: a cleaning leaves its sequence in the log.

Of a producer that a marker has given another epoch the marker is the last."""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from kbroker._log cimport LocalLog
from kbroker.log.engine._records cimport CONTROL_BIT, Header


cdef int known_producers_take(KnownProducers* known, LocalLog log) except -1:
    cdef int64_t at
    _end, entries = log.producer_entries()
    entries.sort()                # by id
    known.list = <KnownProducer*>calloc(<size_t>len(entries) + 1, sizeof(KnownProducer))
    if known.list == NULL:
        raise MemoryError
    for at, entry in enumerate(entries):
        known.list[at].producer_id = entry.producer_id
        known.list[at].last_offset = entry.last_offset
        known.list[at].epoch = entry.producer_epoch
    known.count = len(entries)
    return 0


cdef void known_producers_free(KnownProducers* known) noexcept nogil:
    free(known.list)
    known.list = NULL
    known.count = 0


cdef int known_producers_end_with(
    const KnownProducers* known, const Header* header
) noexcept nogil:
    cdef int64_t low = 0, high = known.count, middle
    if header.producer_id < 0:
        return 0
    while low < high:
        middle = low + (high - low) / 2
        if known.list[middle].producer_id < header.producer_id:
            low = middle + 1
        else:
            high = middle
    if low == known.count or known.list[low].producer_id != header.producer_id:
        return 0
    if known.list[low].last_offset >= 0:
        return known.list[low].last_offset == header.base_offset + header.last_offset_delta
    return header.attributes & CONTROL_BIT and header.producer_epoch == known.list[low].epoch
