# cython: language_level=3
"""The last stable offset of a partition, and the few partitions of which it is late.

Where the transaction that holds it begins is mostly known in memory. After a start, and after a
compaction, the disk may have to be asked. Who holds the log's lock does not ask it: appends would
wait for the disk, and all that want the log for one that hangs. So the offset is late until a
thread that may wait has looked: the one that opens or cuts the log, or a task of the scheduler
(`late_last_stable.py`), which wakes those that wait for committed records then.

Lock: the log's, for the offset. The count is atomic. No GIL.
"""

from libc.stdint cimport int16_t

from kbroker.core._atomics cimport kb_add_int, kb_load_int, kb_store_i64, kb_store_int
from kbroker.core._error_codes cimport NO_ERROR
from kbroker.log.engine._storage cimport lock_to_look, unlock_log
from kbroker.log.engine._transactions cimport last_stable_locked, transaction_start_find
from kbroker.log.engine._types cimport Bound

cdef int late_count = 0           # atomic


cdef void _note_late(Partition* partition, int is_late) noexcept nogil:
    if kb_load_int(&partition.last_stable_is_late) == is_late:
        return
    kb_store_int(&partition.last_stable_is_late, is_late)
    kb_add_int(&late_count, 1 if is_late else -1)


cdef void last_stable_move_locked(Partition* partition) noexcept nogil:
    cdef Bound bound = partition.high_watermark
    cdef int16_t error = NO_ERROR
    if partition.log.producers.first_transaction != NULL:
        error = last_stable_locked(partition.log, &bound)
    _note_late(partition, error != NO_ERROR)
    if error != NO_ERROR and (
            partition.log.log_start_offset <= partition.last_stable.offset <= bound.offset):
        return                    # it stays, for no byte is known to which it may go
    partition.last_stable.segment_base = bound.segment_base
    partition.last_stable.position = bound.position
    kb_store_i64(&partition.last_stable.offset, bound.offset)


cdef int last_stable_find(Partition* partition) noexcept nogil:
    cdef Bound before
    cdef int moved = 0
    if not kb_load_int(&partition.last_stable_is_late):
        return 0
    transaction_start_find(partition.log)
    lock_to_look(partition.log)
    if partition.log.online:
        before = partition.last_stable
        last_stable_move_locked(partition)
        moved = (
            partition.last_stable.offset != before.offset
            or partition.last_stable.segment_base != before.segment_base
            or partition.last_stable.position != before.position)
    unlock_log(partition.log)
    return moved


cdef void last_stable_forget(Partition* partition) noexcept nogil:
    _note_late(partition, 0)


cdef int last_stable_late_count() noexcept nogil:
    return kb_load_int(&late_count)
