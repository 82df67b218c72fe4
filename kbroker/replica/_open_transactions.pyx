# cython: language_level=3
"""The transactions that are open in a partition, and the end of one that hangs there.

Under the partition's lock for as long as the numbers of some transactions are copied. An abort is
written only if the transaction is still the one that was seen: the append compares it under the
lock, so that a batch which came meanwhile is never closed by this marker. Any thread.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._atomics cimport kb_load_i64
from kbroker.log.engine._producer_state cimport (
    Producer, ProducerTable, Transaction, last_offset_of, producers_find)
from kbroker.log.engine._types cimport Marker
from kbroker.replica._marker_append cimport marker_append
from kbroker.replica._partition cimport Partition, partition_lock, partition_unlock
from kbroker.replica._replica cimport Replica

from collections import namedtuple

cdef enum:
    # Of one partition, the oldest ones: those that hang become the oldest.
    OPEN_MAX = 64

OpenTransaction = namedtuple("OpenTransaction", (
    "producer_id", "producer_epoch", "coordinator_epoch", "first_offset", "last_offset"))


cdef struct Open:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset           # of the producer's last batch
    int32_t coordinator_epoch
    int16_t producer_epoch


cdef int _read_locked(ProducerTable* table, Open* found) noexcept nogil:
    # How many; the oldest first.
    cdef Transaction* transaction = table.first_transaction
    cdef Producer* producer
    cdef int count = 0
    while transaction != NULL and count < OPEN_MAX:
        producer = producers_find(table, transaction.producer_id)
        if transaction.marker_offset < 0 and producer != NULL:
            found[count].producer_id = transaction.producer_id
            found[count].first_offset = transaction.first_offset
            found[count].last_offset = last_offset_of(producer)
            found[count].coordinator_epoch = producer.coordinator_epoch
            found[count].producer_epoch = producer.epoch
            count += 1
        transaction = transaction.later
    return count


def open_transactions(Replica replica not None) -> list:
    """Where this broker leads: those below the high watermark first, at most 64."""
    cdef Open found[OPEN_MAX]
    cdef Partition* partition = replica.partition
    cdef int count = 0, at
    # Most partitions have none; their lock is not taken.
    if (kb_load_i64(&partition.last_stable.offset)
            >= kb_load_i64(&partition.high_watermark.offset)):
        return []
    with nogil:
        partition_lock(partition)
        if partition.is_leader:
            count = _read_locked(&partition.log.producers, found)
        partition_unlock(partition)
    return [
        OpenTransaction(
            found[at].producer_id, found[at].producer_epoch, found[at].coordinator_epoch,
            found[at].first_offset, found[at].last_offset)
        for at in range(count)
    ]


cdef int64_t transaction_begun(
    Partition* partition, int64_t producer_id, int64_t offset,
) noexcept nogil:
    cdef Producer* producer
    cdef int64_t first_offset = offset
    partition_lock(partition)
    producer = producers_find(&partition.log.producers, producer_id)
    if producer != NULL and producer.transaction != NULL:
        first_offset = min(offset, producer.transaction.first_offset)
    partition_unlock(partition)
    return first_offset


def abort(Replica replica not None, transaction, int64_t now_ms = -1):
    """Append the marker that aborts it; the error is INVALID_TXN_STATE (48) if a batch has come
    since, or another transaction of the producer is open, or about to begin."""
    cdef Marker marker = Marker(
        transaction.coordinator_epoch, 0, 0, transaction.first_offset, transaction.last_offset, 0,
        0)
    return marker_append(
        replica.partition, transaction.producer_id, transaction.producer_epoch, &marker, now_ms)
