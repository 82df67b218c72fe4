# cython: language_level=3
"""What a partition remembers of producers: epoch, last batches and transaction of each."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kbroker.core._table cimport Table
from kbroker.log.engine._aborted_index cimport AbortedEntry
from kbroker.log.engine._guards cimport Guards
from kbroker.log.engine._records cimport Header
from kbroker.log.engine._types cimport Batch, Bound, Marker

cdef enum:
    PRODUCER_BATCHES_KEPT = 5


cdef struct ProducerBatch:
    int64_t last_offset
    int64_t timestamp_ms
    int32_t last_sequence
    int32_t offset_delta          # last offset - first offset


cdef enum:
    ON_DISK = -2                  # Transaction.start.position


cdef struct Transaction:
    # From its first batch in this partition until the high watermark is above its marker.
    Transaction* earlier          # by first offset
    Transaction* later
    Transaction* ended_before     # by marker, of those that have one
    Transaction* ended_after
    int64_t producer_id
    int64_t first_offset
    int64_t marker_offset         # -1: it is open
    # Of the first batch, or of the log's start where that is above; the position is -1 where it is
    # not known, after a start from a snapshot or a compaction, and ON_DISK where memory does not
    # say it either.
    Bound start


cdef struct Producer:
    Producer* older               # by the last append
    Producer* newer
    int64_t producer_id
    int64_t last_timestamp_ms
    int64_t written_in            # the write that noted it last: while it lasts it is in `undo`
    Transaction* transaction      # the open one, or NULL
    int64_t marker_run            # of the last marker that had one, as it was asked for here; or 0
    int64_t marker_number
    int32_t coordinator_epoch
    int16_t epoch
    int8_t batch_count
    ProducerBatch batches[PRODUCER_BATCHES_KEPT]    # oldest first


cdef struct ProducerUndo:
    Producer* producer
    Producer before
    int8_t is_new
    int8_t is_marker


cdef enum:
    UNDO_KEPT_MAX = 256


cdef struct ProducerTable:
    Table by_id
    Producer* oldest
    Producer* newest
    Transaction* first_transaction
    Transaction* last_transaction
    Transaction* first_ended
    Transaction* last_ended
    AbortedEntry* aborted         # of the markers of the write under way, or of a replay
    int32_t aborted_count
    int32_t aborted_max
    Guards guards
    ProducerUndo* undo
    int32_t undo_count
    int32_t undo_max
    int64_t write                 # the number of the one that is under way, or comes next
    int64_t evicted


cdef Producer* producers_find(ProducerTable* table, int64_t producer_id) noexcept nogil

# Whether a batch of that epoch continues the open transaction.
cdef inline int has_transaction(const Producer* producer, int16_t epoch) noexcept nogil:
    return producer != NULL and producer.transaction != NULL and producer.epoch == epoch

# Whether a marker is a late copy of one that was written here: the transaction that is open began
# after it, perhaps in the same epoch.
cdef inline int is_late_copy(const Producer* producer, const Marker* marker) noexcept nogil:
    return (producer.transaction != NULL and marker.run != 0
            and marker.run == producer.marker_run and marker.number <= producer.marker_number)

cdef inline void note_outcome(Producer* producer, const Marker* marker) noexcept nogil:
    if marker.run == 0:
        return
    if marker.run != producer.marker_run or marker.number > producer.marker_number:
        producer.marker_number = marker.number
    producer.marker_run = marker.run

# Whether it is one of the last five of this epoch, and written: below that end.
cdef int is_duplicate(
    Producer* producer, const Batch* batch, int64_t log_end_offset) noexcept nogil

# Of its last batch; -1: none is known.
cdef inline int64_t last_offset_of(const Producer* producer) noexcept nogil:
    return producer.batches[producer.batch_count - 1].last_offset if producer.batch_count else -1

# The value of a snapshot; -1: none is open.
cdef inline int64_t transaction_first_offset(const Producer* producer) noexcept nogil:
    return producer.transaction.first_offset if producer.transaction != NULL else -1

# May this batch be appended now? 0, or a Kafka error code. With `duplicate` not NULL afterwards it
# has been appended before, as that batch.
cdef int16_t producers_check(
    ProducerTable* table, const Batch* batch, ProducerBatch** duplicate) noexcept nogil

# The batch is now (or will be) at `base_offset`. Tentative until the commit. 0 or ENOMEM. `start`:
# where it begins, of a transactional one, which opens a transaction if there is none; else NULL.
cdef int producers_note(
    ProducerTable* table, int64_t producer_id, int16_t epoch, int32_t base_sequence,
    int32_t last_offset_delta, int64_t base_offset, int64_t timestamp_ms, const Bound* start
) noexcept nogil
# The same of a marker: it ends the producer's transaction, which is one more in `aborted` where
# that is aborted and has data.
cdef int producers_note_marker(
    ProducerTable* table, int64_t producer_id, int16_t epoch, const Marker* marker, int64_t offset,
    int64_t timestamp_ms) noexcept nogil
# The same of a batch that is written already, or by the leader; nothing is judged. `records`: so
# many bytes of them, needed where may_be_marker().
cdef int producers_note_stored(
    ProducerTable* table, const Header* header, const uint8_t* records, int64_t length,
    int64_t segment_base, int64_t position) noexcept nogil
cdef inline void producers_commit(ProducerTable* table) noexcept nogil:
    if table.guards.by_id.count:
        producers_end_guards(table)
    table.undo_count = 0
    if table.undo_max > UNDO_KEPT_MAX:
        producers_free_undo(table)
    table.write += 1


# A log does not keep the room that a write of very many producers needed.
cdef void producers_free_undo(ProducerTable* table) noexcept nogil

# Now that what they were for is in the log: a write that fails leaves them.
cdef void producers_end_guards(ProducerTable* table) noexcept nogil
cdef void producers_roll_back(ProducerTable* table) noexcept nogil

# A batch of a producer as a snapshot has it; the oldest comes first. 0 or ENOMEM.
cdef int producers_restore(
    ProducerTable* table, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch,
    const ProducerBatch* batch, int64_t transaction_first_offset) noexcept nogil

# A transaction that has ended, of which the high watermark has not passed the marker; of those that
# are restored the first ones first. 0 or ENOMEM.
cdef int producers_restore_ended(
    ProducerTable* table, int64_t producer_id, int64_t first_offset, int64_t marker_offset
) noexcept nogil

# The high watermark is there: transactions that ended below it are forgotten.
cdef void producers_replicated(ProducerTable* table, int64_t high_watermark) noexcept nogil

# The bytes of a segment are elsewhere now.
cdef void producers_forget_positions(ProducerTable* table, int64_t segment_base) noexcept nogil

# Forgets those whose last batch is before a time, but for those with an open transaction, and
# verifications that have been idle since the last time; answers how many producers.
cdef int64_t producers_expire(ProducerTable* table, int64_t before_ms) noexcept nogil
cdef void producers_clear(ProducerTable* table) noexcept nogil
