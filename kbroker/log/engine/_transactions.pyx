# cython: language_level=3
"""Transactions of a log: the check of a batch before it is appended, and the last stable offset.

A batch whose transaction is open here needs no look at its coordinator. The first one of a
transaction does, and is given the guard of a verification (`_guards.pyx`); before that, errors
that need none are returned: a producer of an old epoch is fenced, and not refused as one without a
transaction. The append decides again (`_producer_state.pyx`).

The last stable offset is the high watermark, or the first offset of a transaction that is open
below it, or that is decided by a marker which the high watermark has not passed. Where that lies in
the files is noted when the transaction begins. Under the log's lock, no GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._error_codes cimport INVALID_PRODUCER_EPOCH, NO_ERROR, NOT_ENOUGH_REPLICAS
from kbroker.log.engine._guards cimport Verification, guards_begin
from kbroker.log.engine._producer_state cimport (
    Producer, Transaction, has_transaction, is_duplicate, producers_find, producers_replicated)
from kbroker.log.engine._read cimport log_bound_locked
from kbroker.log.engine._storage cimport log_find_segment
from kbroker.log.engine._types cimport Batch, Bound

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
    cdef int16_t error
    producers_replicated(&log.producers, bound.offset)
    first = log.producers.first_transaction
    if first == NULL or first.first_offset >= bound.offset:
        return NO_ERROR
    if first.start.position < 0 or first.start.offset < log.log_start_offset:
        error = log_bound_locked(log, first.first_offset, &first.start)
        if error != NO_ERROR:
            first.start.position = -1
            _bound_below_segment_of(log, first.first_offset, bound)
            return error
    if first.start.offset < bound.offset:
        bound[0] = first.start
    return NO_ERROR
