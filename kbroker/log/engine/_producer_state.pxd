# cython: language_level=3
"""What a partition remembers of idempotent producers: epoch and last five batches of each."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from kbroker.core._table cimport Table
from kbroker.log.engine._types cimport Batch

cdef enum:
    PRODUCER_BATCHES_KEPT = 5


cdef struct ProducerBatch:
    int64_t last_offset
    int64_t timestamp_ms
    int32_t last_sequence
    int32_t offset_delta          # last offset - first offset


cdef struct Producer:
    Producer* older               # by the last append
    Producer* newer
    int64_t producer_id
    int64_t last_timestamp_ms
    int64_t transaction_first_offset
    int32_t coordinator_epoch
    int16_t epoch
    int8_t batch_count
    ProducerBatch batches[PRODUCER_BATCHES_KEPT]    # oldest first


cdef struct ProducerUndo:
    Producer* producer
    Producer before
    int8_t is_new


cdef struct ProducerTable:
    Table by_id
    Producer* oldest
    Producer* newest
    ProducerUndo* undo
    int32_t undo_count
    int32_t undo_max
    int64_t evicted


cdef Producer* producers_find(ProducerTable* table, int64_t producer_id) noexcept nogil

# May this batch be appended now? 0, or a Kafka error code. With `duplicate` not NULL afterwards it
# has been appended before, as that batch.
cdef int16_t producers_check(
    ProducerTable* table, const Batch* batch, ProducerBatch** duplicate) noexcept nogil

# The batch now stands (or will) at `base_offset`. Tentative until the commit. 0 or ENOMEM.
cdef int producers_note(
    ProducerTable* table, int64_t producer_id, int16_t epoch, int32_t base_sequence,
    int32_t last_offset_delta, int64_t base_offset, int64_t timestamp_ms) noexcept nogil
cdef void producers_commit(ProducerTable* table) noexcept nogil
cdef void producers_roll_back(ProducerTable* table) noexcept nogil

# A producer as a snapshot has it. 0 or ENOMEM.
cdef int producers_restore(
    ProducerTable* table, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch,
    const ProducerBatch* last, int64_t transaction_first_offset) noexcept nogil

# Forgets those last heard of before a time; answers how many.
cdef int64_t producers_expire(ProducerTable* table, int64_t before_ms) noexcept nogil
cdef void producers_clear(ProducerTable* table) noexcept nogil
