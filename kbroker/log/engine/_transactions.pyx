# cython: language_level=3
"""Transactions of a log: the check of a batch before it is appended, and the last stable offset.

A batch whose transaction is open here needs no look at its coordinator. The first one of a
transaction does, and is given the guard of a verification (`_guards.pyx`); before that, errors
that need none are returned: a producer of an old epoch is fenced, and not refused as one without a
transaction. The append decides again (`_producer_state.pyx`).

The last stable offset is the high watermark, or the first offset of a transaction that is open
below it, or that is decided by a marker which the high watermark has not passed. Where that lies in
the files is noted when the transaction begins. After a start from a snapshot, and after a
compaction, it is looked for: in memory under the log's lock, which appends wait for, and on the
disk without it, by threads that may wait (`transaction_start_find`). No GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._error_codes cimport INVALID_PRODUCER_EPOCH, NO_ERROR, NOT_ENOUGH_REPLICAS
from kbroker.log.engine._guards cimport Verification, guards_begin
from kbroker.log.engine._producer_state cimport (
    ON_DISK, Producer, Transaction, has_transaction, is_duplicate, producers_find,
    producers_replicated)
from kbroker.log.engine._read cimport Found, log_bound_locked, log_place_of
from kbroker.log.engine._segment cimport segment_drop_reference
from kbroker.log.engine._storage cimport (
    lock_to_look, log_find_segment, log_has_segment, unlock_log)
from kbroker.log.engine._types cimport READ_WOULD_WAIT, WAITS_FOR_LOCKS, Batch, Bound

cdef enum:
    # Of Produce, and from it on a producer has an epoch for each transaction.
    ADDS_BY_PRODUCE = 12


cdef int transaction_check_locked(
    Log* log, const Batch* batch, int64_t* guard
) noexcept nogil:
    cdef Producer* producer = producers_find(&log.producers, batch.producer_id)
    cdef Verification* verification
    guard[0] = 0
    if producer != NULL:
        if batch.producer_epoch < producer.epoch:
            return INVALID_PRODUCER_EPOCH
        # What is noted at or above the log's end is being written now, and may fail.
        if has_transaction(producer, batch.producer_epoch) and (
                producer.transaction.first_offset < log.log_end_offset):
            return TRANSACTION_OPEN
        if is_duplicate(producer, batch, log.log_end_offset):
            return TRANSACTION_OPEN
    verification = guards_begin(
        &log.producers.guards, batch.producer_id, batch.producer_epoch, batch.base_sequence,
        batch.api_version >= ADDS_BY_PRODUCE)
    if verification == NULL:
        return NOT_ENOUGH_REPLICAS    # as where the coordinator cannot be asked: tried again
    guard[0] = verification.guard
    return TRANSACTION_NEEDS_GUARD


cdef void _bound_below_segment_of(Log* log, int64_t offset, Bound* bound) noexcept nogil:
    # The offset, and no byte of the segment that it is in.
    cdef int32_t at
    bound.offset = max(offset, log.log_start_offset)
    at = log_find_segment(log, bound.offset)
    bound.segment_base = log.segments[at].base_offset if at >= 0 else bound.offset
    bound.position = 0


cdef int16_t last_stable_locked(Log* log, Bound* bound) noexcept nogil:
    cdef Transaction* first
    producers_replicated(&log.producers, bound.offset)
    first = log.producers.first_transaction
    if first == NULL or first.first_offset >= bound.offset:
        return NO_ERROR
    if first.start.position >= 0 and first.start.offset < log.log_start_offset:
        first.start.position = -1
    if first.start.position == -1 and log_bound_locked(
            log, first.first_offset, WAITS_FOR_LOCKS, &first.start) != NO_ERROR:
        first.start.position = ON_DISK
    if first.start.position < 0:
        _bound_below_segment_of(log, first.first_offset, bound)
        return READ_WOULD_WAIT
    if first.start.offset < bound.offset:
        bound[0] = first.start
    return NO_ERROR


cdef Transaction* _unknown_locked(Log* log) noexcept nogil:
    # The first transaction, if it is not known where it begins.
    cdef Transaction* first = log.producers.first_transaction
    if not log.online or first == NULL or first.start.position >= 0:
        return NULL
    return first


cdef int16_t transaction_start_find(Log* log) noexcept nogil:
    cdef Transaction* first
    cdef Found found
    cdef int64_t first_offset = -1, offset = -1
    cdef int16_t error
    lock_to_look(log)
    first = _unknown_locked(log)
    if first != NULL:
        first_offset = first.first_offset
        offset = max(first_offset, log.log_start_offset)
    unlock_log(log)
    if first_offset < 0:
        return NO_ERROR
    error = log_place_of(log, offset, &found)
    if error != NO_ERROR or found.segment == NULL:
        return error
    lock_to_look(log)
    # A segment that was compacted or cut off meanwhile is not the log's any more. A cut above the
    # transaction's beginning leaves the bytes below it, and one below it takes the transaction.
    first = _unknown_locked(log)
    if (
        first != NULL and first.first_offset == first_offset and offset >= log.log_start_offset
        and log_has_segment(log, found.segment)
    ):
        first.start.offset = offset
        first.start.segment_base = found.segment.base_offset
        first.start.position = found.position
    unlock_log(log)
    segment_drop_reference(found.segment)
    return NO_ERROR
