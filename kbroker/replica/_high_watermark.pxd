# cython: language_level=3
"""Where the high watermark of a partition moves, and with it the last stable offset."""

from libc.stdint cimport int16_t, int64_t

from kbroker.log.engine._types cimport Patience
from kbroker.replica._partition_struct cimport Partition

# The high watermark as a checkpoint has it, or a partition with followers: to the start of the
# batch that holds an offset, not beyond the log's end. 0 or a Kafka error code.
cdef int16_t partition_set_high_watermark(Partition* partition, int64_t offset) noexcept nogil

# A high watermark and a last stable offset that are late move to where the disk says that they are;
# it is asked without the lock. 1: one has moved; requests that wait may be answered.
cdef int partition_find_late(Partition* partition) noexcept nogil

# Moves the high watermark to where every replica in sync is; nothing, if it is there. Where memory
# does not say where that lies, it stays and is late: the disk is not asked under the lock.
cdef void partition_advance_locked(Partition* partition) noexcept nogil

# To the start of the batch that holds an offset, which is found as far as `patience` allows; the
# last stable offset goes with it. 0, READ_WOULD_WAIT, or a Kafka error code: it stays.
cdef int16_t move_high_watermark_locked(
    Partition* partition, int64_t offset, Patience patience) noexcept nogil

# The last stable offset, to the high watermark or to where a transaction holds it.
cdef void move_last_stable_locked(Partition* partition) noexcept nogil

# One that is late, as `partition_find_late` does.
cdef int find_last_stable(Partition* partition) noexcept nogil
