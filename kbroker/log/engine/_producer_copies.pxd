# cython: language_level=3
"""Copies of the producers of a log as of one offset, which are read without its lock."""

from libc.stdint cimport int64_t, uint8_t

from kbroker.log.engine._producer_state cimport Producer, ProducerBatch
from kbroker.log.engine._storage cimport Log


cdef struct ProducerCopies:
    Producer* producers           # that with the oldest append first
    int64_t* first_offsets        # of their open transactions; -1: none
    int64_t count
    int64_t end                   # the log's, then


# Takes the lock, after the write that is under way. 0, or -1: no memory, nothing is to be freed.
cdef int producers_copy(Log* log, ProducerCopies* out) noexcept nogil
cdef void producers_free(ProducerCopies* copies) noexcept nogil

# The batch at a place; below 0: of a producer that has a transaction or a marker, and no batch.
cdef ProducerBatch producer_batch(const Producer* producer, int number) noexcept nogil

cdef enum:
    SNAPSHOT_ENTRY_BYTES = 46

# The entries of a snapshot file (producer_snapshots.py): how many bytes, and they themselves.
cdef int64_t snapshot_bytes(const ProducerCopies* copies) noexcept nogil
cdef void snapshot_write(const ProducerCopies* copies, uint8_t* at) noexcept nogil
