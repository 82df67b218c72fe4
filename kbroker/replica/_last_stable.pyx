# cython: language_level=3
"""The last stable offset of a partition.

Where the transaction that holds it begins is mostly known in memory. After a start, and after a
compaction, the disk may have to be asked. The offset is late then (`_late.pyx`) until a thread that
may wait has looked: the one that opens or cuts the log, or a task of the scheduler.

Lock: the log's. No GIL.
"""

from libc.stdint cimport int16_t

from kbroker.core._atomics cimport kb_load_int, kb_store_i64
from kbroker.core._error_codes cimport NO_ERROR
from kbroker.log.engine._storage cimport lock_to_look, unlock_log
from kbroker.log.engine._transactions cimport last_stable_locked, transaction_start_find
from kbroker.log.engine._types cimport Bound
from kbroker.replica._late cimport note_late


cdef void last_stable_move_locked(
    Log* log, const Bound* high_watermark, Bound* at, int* is_late
) noexcept nogil:
    cdef Bound bound = high_watermark[0]
    cdef int16_t error = NO_ERROR
    if log.producers.first_transaction != NULL:
        error = last_stable_locked(log, &bound)
    note_late(is_late, error != NO_ERROR)
    if error != NO_ERROR and log.log_start_offset <= at.offset <= bound.offset:
        return                    # it stays, for no byte is known to which it may go
    at.segment_base = bound.segment_base
    at.position = bound.position
    kb_store_i64(&at.offset, bound.offset)


cdef int last_stable_find(
    Log* log, const Bound* high_watermark, Bound* at, int* is_late
) noexcept nogil:
    cdef Bound before
    cdef int moved = 0
    if not kb_load_int(is_late):
        return 0
    transaction_start_find(log)
    lock_to_look(log)
    if log.online:
        before = at[0]
        last_stable_move_locked(log, high_watermark, at, is_late)
        moved = (
            at.offset != before.offset or at.segment_base != before.segment_base
            or at.position != before.position)
    unlock_log(log)
    return moved
