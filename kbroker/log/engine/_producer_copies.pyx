# cython: language_level=3
"""Copies of a log's producers, and the entries of a snapshot file made of them.

A log may have 100,000 producers. They are copied under its lock, a few hundred bytes for each, and
written down without it and without the GIL: at most five entries for each.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free

from kbroker.log.engine._producer_state cimport Producer, ProducerBatch, transaction_first_offset
from kbroker.log.engine._storage cimport Log, lock_log, unlock_log
from kbroker.protocol._cursor cimport put_i16, put_i32, put_i64


cdef int producers_copy(Log* log, ProducerCopies* out) noexcept nogil:
    cdef Producer* producer
    cdef size_t room
    out.count = 0
    lock_log(log)
    out.end = log.log_end_offset
    room = <size_t>log.producers.by_id.count + 1
    out.producers = <Producer*>calloc(room, sizeof(Producer))
    out.first_offsets = <int64_t*>calloc(room, sizeof(int64_t))
    if out.producers != NULL and out.first_offsets != NULL:
        producer = log.producers.oldest
        while producer != NULL:
            out.producers[out.count] = producer[0]
            out.first_offsets[out.count] = transaction_first_offset(producer)
            out.count += 1
            producer = producer.newer
        unlock_log(log)
        return 0
    unlock_log(log)
    producers_free(out)
    return -1


cdef void producers_free(ProducerCopies* copies) noexcept nogil:
    free(copies.producers)
    free(copies.first_offsets)


cdef int64_t snapshot_bytes(const ProducerCopies* copies) noexcept nogil:
    cdef int64_t entries = 0, at
    for at in range(copies.count):
        entries += max(<int64_t>copies.producers[at].batch_count, <int64_t>1)
    return entries * SNAPSHOT_ENTRY_BYTES


cdef ProducerBatch producer_batch(const Producer* producer, int number) noexcept nogil:
    cdef ProducerBatch none
    if number >= 0:
        return producer.batches[number]
    none.last_sequence = -1
    none.last_offset = -1
    none.offset_delta = 0
    none.timestamp_ms = producer.last_timestamp_ms
    return none


cdef void snapshot_write(const ProducerCopies* copies, uint8_t* at) noexcept nogil:
    cdef const Producer* producer
    cdef ProducerBatch batch
    cdef int64_t place
    cdef int number, last
    for place in range(copies.count):
        producer = &copies.producers[place]
        last = <int>producer.batch_count - 1
        for number in range(min(last, 0), last + 1):
            batch = producer_batch(producer, number)
            at = put_i64(at, producer.producer_id)
            at = put_i16(at, producer.epoch)
            at = put_i32(at, batch.last_sequence)
            at = put_i64(at, batch.last_offset)
            at = put_i32(at, batch.offset_delta)
            at = put_i64(at, batch.timestamp_ms)
            at = put_i32(at, producer.coordinator_epoch)
            at = put_i64(at, copies.first_offsets[place] if number == last else -1)
