# cython: language_level=3
"""Leader epochs as a fetch asks for them: how far did epoch N come?

A copy of the list in leader_epochs.py, which owns the truth and its file and gives a new copy
whenever it changes. Read under the log's lock, together with the log's end.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from kbroker.log.engine._storage cimport EpochStart, Log, lock_to_look, unlock_log

cdef enum:
    NO_EPOCH = -1


cdef void epochs_replace(Log* log, EpochStart* fresh, int32_t count) noexcept nogil:
    """Takes over `fresh`, which may be NULL where `count` is 0.

    Waits for no write: `LeaderEpochs._lock` is held, which a move takes while a write hangs."""
    cdef EpochStart* old
    lock_to_look(log)
    old = log.epochs
    log.epochs = fresh
    log.epoch_count = count
    unlock_log(log)
    free(old)


cdef void epoch_end_locked(
    Log* log, int32_t asked, int32_t* epoch, int64_t* end_offset
) noexcept nogil:
    # Its end is where the next one begins.
    cdef int32_t at = log.epoch_count - 1
    epoch[0] = NO_EPOCH
    end_offset[0] = -1
    if at < 0 or asked > log.epochs[at].epoch:
        return
    end_offset[0] = log.log_end_offset
    while at >= 0 and log.epochs[at].epoch > asked:
        end_offset[0] = log.epochs[at].start_offset
        at -= 1
    epoch[0] = asked if at < 0 else log.epochs[at].epoch
