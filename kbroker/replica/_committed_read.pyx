# cython: language_level=3
"""A read_committed fetch in its two steps, for Python that reads as one: the bytes, and then which
aborted transactions may have data in them."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._arena cimport Arena, arena_free
from kbroker.log.engine._aborted cimport AbortedTransaction, aborted_collect
from kbroker.log.engine._segment cimport slice_release
from kbroker.log.engine._types cimport WAITS_FOR_DISK, FileSlice
from kbroker.replica._partition cimport (
    FROM_LEADER, TO_LAST_STABLE, ReplicaOffsets, partition_read)
from kbroker.replica._replica cimport Replica

from kbroker.errors import ErrorCode, KafkaError


cdef class CommittedRead:
    """What lies in the log from an offset on, up to the last stable offset. KafkaError."""

    cdef Replica replica
    cdef FileSlice slice
    cdef ReplicaOffsets offsets
    cdef int64_t offset

    def __cinit__(self, Replica replica not None, int64_t offset, int64_t max_bytes = 1 << 20):
        cdef int16_t error
        self.replica = replica
        self.offset = offset
        with nogil:
            error = partition_read(
                replica.partition, offset, max_bytes, 1, TO_LAST_STABLE, FROM_LEADER,
                WAITS_FOR_DISK, &self.slice, &self.offsets)
        if error:
            raise KafkaError(ErrorCode(error), f"offset {offset}")

    def __dealloc__(self):
        slice_release(&self.slice)

    def aborted(self) -> list:
        """(producer id, first offset) of the aborted transactions that may have data in it, in the
        order of their markers. KafkaError."""
        cdef Arena arena
        cdef AbortedTransaction* found = NULL
        cdef int32_t count = 0, at
        cdef int16_t error
        arena.block = NULL
        with nogil:
            error = aborted_collect(
                self.replica.partition.log, self.offset, &self.slice, self.offsets.last_stable,
                WAITS_FOR_DISK, &arena, &found, &count)
        listed = [(found[at].producer_id, found[at].first_offset) for at in range(count)]
        arena_free(&arena)
        if error:
            raise KafkaError(ErrorCode(error), f"offset {self.offset}")
        return listed


def aborted_transactions(
    Replica replica not None, int64_t offset, int64_t max_bytes = 1 << 20,
) -> list:
    """`CommittedRead.aborted` of a fetch from an offset."""
    return CommittedRead(replica, offset, max_bytes).aborted()
