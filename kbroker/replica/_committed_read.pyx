# cython: language_level=3
"""The part of a read_committed fetch beside its bytes, for Python that reads as one."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._arena cimport Arena, arena_free
from kbroker.log.engine._aborted cimport AbortedTransaction, aborted_collect
from kbroker.log.engine._segment cimport slice_release
from kbroker.log.engine._types cimport WAITS_FOR_DISK, FileSlice
from kbroker.replica._partition cimport (
    FROM_LEADER, TO_LAST_STABLE, ReplicaOffsets, partition_read)
from kbroker.replica._replica cimport Replica

from kbroker.errors import ErrorCode, KafkaError


def aborted_transactions(
    Replica replica not None, int64_t offset, int64_t max_bytes = 1 << 20,
) -> list:
    """(producer id, first offset) of the aborted transactions that may have data in what a fetch
    from an offset gets, in the order of their markers."""
    cdef Arena arena
    cdef FileSlice slice
    cdef ReplicaOffsets offsets
    cdef AbortedTransaction* found = NULL
    cdef int32_t count = 0, at
    cdef int16_t error
    arena.block = NULL
    with nogil:
        error = partition_read(
            replica.partition, offset, max_bytes, 1, TO_LAST_STABLE, FROM_LEADER, WAITS_FOR_DISK,
            &slice, &offsets)
        if error == 0:
            error = aborted_collect(
                replica.partition.log, offset, &slice, offsets.last_stable, WAITS_FOR_DISK, &arena,
                &found, &count)
            slice_release(&slice)
    listed = [(found[at].producer_id, found[at].first_offset) for at in range(count)]
    arena_free(&arena)
    if error:
        raise KafkaError(ErrorCode(error), f"offset {offset}")
    return listed
