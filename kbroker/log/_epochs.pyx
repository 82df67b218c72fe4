# cython: language_level=3
"""Leader epochs as a fetch asks for them: how far did epoch N come?

A copy of the list in leader_epochs.py, which owns the truth and its file and gives a new copy
whenever it changes. Read under the partition's lock, together with the log's end.
"""

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport free

from kbroker.log._partition cimport Partition
from kbroker.log._records cimport KAFKA_STORAGE_ERROR, NO_ERROR, NOT_LEADER_OR_FOLLOWER
from kbroker.log._storage cimport (
    EpochStart, Log, lock_partition, lock_to_look, log_of, unlock_partition)

cdef enum:
    NO_EPOCH = -1


cdef void epochs_replace(Partition* partition, EpochStart* fresh, int32_t count) noexcept nogil:
    """Takes over `fresh`, which may be NULL where `count` is 0."""
    cdef Log* log = log_of(partition)
    cdef EpochStart* old
    lock_partition(partition)
    old = log.epochs
    log.epochs = fresh
    log.epoch_count = count
    unlock_partition(partition)
    free(old)


cdef void _find_locked(
    Partition* partition, int32_t asked, int32_t* epoch, int64_t* end_offset
) noexcept nogil:
    # The largest epoch at or below the one asked; its end is where the next one begins.
    cdef Log* log = log_of(partition)
    cdef int32_t at = log.epoch_count - 1
    if at < 0 or asked > log.epochs[at].epoch:
        return
    end_offset[0] = partition.log_end_offset
    while at >= 0 and log.epochs[at].epoch > asked:
        end_offset[0] = log.epochs[at].start_offset
        at -= 1
    epoch[0] = asked if at < 0 else log.epochs[at].epoch


cdef int16_t partition_epoch_end(
    Partition* partition, int32_t asked, int32_t* epoch, int64_t* end_offset
) noexcept nogil:
    """(epoch, end offset) as the leader knows them, -1 and -1 if it does not; an error code."""
    cdef int16_t error = NO_ERROR
    epoch[0] = NO_EPOCH
    end_offset[0] = -1
    lock_to_look(partition)
    if not partition.online:
        error = KAFKA_STORAGE_ERROR
    elif not partition.is_leader:
        error = NOT_LEADER_OR_FOLLOWER
    else:
        _find_locked(partition, asked, epoch, end_offset)
    unlock_partition(partition)
    return error
