# cython: language_level=3
"""Idempotent producers of one partition, as a hash table with the order of their last appends.

Checked and noted inside the group append, under the partition's lock, without the GIL. What a
group notes is tentative: later batches of the same group see it (a duplicate inside one write
gets the first one's offset), and it is undone if the write fails.

The rules: the same first and last sequence as one of the last five batches is a duplicate, looked
for before anything else. Otherwise the epoch must not fall; in the same epoch the sequence must
follow the last one (INT32_MAX is followed by 0); in a new epoch it must be 0. A producer that the
partition does not know may begin with any sequence: its state may have expired or been deleted.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove, memset

from kbroker.core._error_codes cimport INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER
from kbroker.core._limits cimport PRODUCERS_MAX
from kbroker.core._list cimport linked_append, linked_remove
from kbroker.core._live_objects cimport LIVE_PRODUCERS, live_add
from kbroker.core._name_hash cimport name_hash
from kbroker.core._table cimport table_find, table_free, table_put, table_remove, table_room
from kbroker.log.engine._types cimport Batch


cdef inline int32_t sequence_after(int32_t sequence, int32_t increment) noexcept nogil:
    # INT32_MAX is followed by 0.
    if sequence > INT32_MAX - increment:
        return increment - (INT32_MAX - sequence) - 1
    return sequence + increment


cdef inline int32_t first_sequence(const ProducerBatch* batch) noexcept nogil:
    if batch.last_sequence < batch.offset_delta:
        return INT32_MAX - (batch.offset_delta - batch.last_sequence) + 1
    return batch.last_sequence - batch.offset_delta


# --- The table ------------------------------------------------------------------------------------

cdef inline uint32_t hash_of_id(int64_t producer_id) noexcept nogil:
    # Keyed: a producer may come with any id, not only with one that it was given.
    return name_hash(<const uint8_t*>&producer_id, <int32_t>sizeof(producer_id))


cdef inline uint32_t hash_of_producer(const void* item) noexcept nogil:
    return hash_of_id((<const Producer*>item).producer_id)


cdef inline int has_id(const void* item, const void* key) noexcept nogil:
    return (<const Producer*>item).producer_id == (<const int64_t*>key)[0]


cdef Producer* producers_find(ProducerTable* table, int64_t producer_id) noexcept nogil:
    if table.by_id.count == 0:
        return NULL
    return <Producer*>table_find(&table.by_id, hash_of_id(producer_id), has_id, &producer_id)


cdef void unlink_order(ProducerTable* table, Producer* producer) noexcept nogil:
    linked_remove(&table.oldest, &table.newest, producer, &producer.older,
                  "producers: neighbours name each other")


cdef void make_newest(ProducerTable* table, Producer* producer) noexcept nogil:
    linked_append(&table.oldest, &table.newest, producer, &producer.older,
                  "producers: nothing is after the newest")


cdef void remove(ProducerTable* table, Producer* producer) noexcept nogil:
    table_remove(&table.by_id, producer, hash_of_producer, "producers: one that goes is known")
    unlink_order(table, producer)
    live_add(LIVE_PRODUCERS, -1)
    free(producer)


cdef Producer* insert(ProducerTable* table, int64_t producer_id) noexcept nogil:
    cdef Producer* producer
    if table_room(&table.by_id, hash_of_producer) != 0:
        return NULL
    if table.by_id.count >= PRODUCERS_MAX and <uint32_t>table.undo_count < table.by_id.count:
        remove(table, table.oldest)
        table.evicted += 1
    producer = <Producer*>calloc(1, sizeof(Producer))
    if producer == NULL:
        return NULL
    live_add(LIVE_PRODUCERS, 1)
    producer.producer_id = producer_id
    producer.coordinator_epoch = -1
    producer.transaction_first_offset = -1
    table_put(&table.by_id, producer, hash_of_id(producer_id))
    make_newest(table, producer)
    return producer


# --- Checking and noting --------------------------------------------------------------------------

cdef ProducerBatch* find_duplicate(
    Producer* producer, int32_t base_sequence, int32_t last_sequence
) noexcept nogil:
    cdef int at
    for at in range(producer.batch_count):
        if (producer.batches[at].last_sequence == last_sequence
                and first_sequence(&producer.batches[at]) == base_sequence):
            return &producer.batches[at]
    return NULL


cdef int16_t producers_check(
    ProducerTable* table, const Batch* batch, ProducerBatch** duplicate
) noexcept nogil:
    cdef Producer* producer = producers_find(table, batch.producer_id)
    duplicate[0] = NULL
    if producer == NULL:
        return 0
    if batch.producer_epoch < producer.epoch:
        return INVALID_PRODUCER_EPOCH
    if batch.producer_epoch > producer.epoch:
        return 0 if batch.base_sequence == 0 else OUT_OF_ORDER_SEQUENCE_NUMBER
    duplicate[0] = find_duplicate(
        producer, batch.base_sequence, sequence_after(batch.base_sequence, batch.record_count - 1))
    if duplicate[0] != NULL or producer.batch_count == 0:
        return 0
    if batch.base_sequence != sequence_after(
            producer.batches[producer.batch_count - 1].last_sequence, 1):
        return OUT_OF_ORDER_SEQUENCE_NUMBER
    return 0


cdef int remember(ProducerTable* table, Producer* producer, int is_new) noexcept nogil:
    cdef ProducerUndo* undo
    cdef int32_t wanted
    if table.undo_count == table.undo_max:
        wanted = table.undo_max * 2 if table.undo_max else 8
        undo = <ProducerUndo*>realloc(table.undo, <size_t>wanted * sizeof(ProducerUndo))
        if undo == NULL:
            return ENOMEM
        table.undo = undo
        table.undo_max = wanted
    table.undo[table.undo_count].producer = producer
    table.undo[table.undo_count].before = producer[0]
    table.undo[table.undo_count].is_new = is_new
    table.undo_count += 1
    return 0


cdef int producers_note(
    ProducerTable* table, int64_t producer_id, int16_t epoch, int32_t base_sequence,
    int32_t last_offset_delta, int64_t base_offset, int64_t timestamp_ms
) noexcept nogil:
    cdef Producer* producer = producers_find(table, producer_id)
    cdef ProducerBatch* batch
    cdef int is_new = producer == NULL
    if is_new:
        producer = insert(table, producer_id)
        if producer == NULL:
            return ENOMEM
    if remember(table, producer, is_new) != 0:
        if is_new:
            remove(table, producer)
        return ENOMEM
    if epoch != producer.epoch:
        producer.batch_count = 0
        producer.epoch = epoch
    if producer.batch_count == PRODUCER_BATCHES_KEPT:
        memmove(&producer.batches[0], &producer.batches[1],
                (PRODUCER_BATCHES_KEPT - 1) * sizeof(ProducerBatch))
        producer.batch_count -= 1
    batch = &producer.batches[producer.batch_count]
    producer.batch_count += 1
    batch.last_sequence = sequence_after(base_sequence, last_offset_delta)
    batch.offset_delta = last_offset_delta
    batch.last_offset = base_offset + last_offset_delta
    batch.timestamp_ms = timestamp_ms
    producer.last_timestamp_ms = timestamp_ms
    if table.newest != producer:
        unlink_order(table, producer)
        make_newest(table, producer)
    return 0


cdef void producers_commit(ProducerTable* table) noexcept nogil:
    table.undo_count = 0


cdef void producers_roll_back(ProducerTable* table) noexcept nogil:
    cdef ProducerUndo* undo
    cdef Producer* producer
    while table.undo_count > 0:
        table.undo_count -= 1
        undo = &table.undo[table.undo_count]
        producer = undo.producer
        if undo.is_new:
            remove(table, producer)
            continue
        # All but the links, which say where the entry stands now.
        undo.before.older = producer.older
        undo.before.newer = producer.newer
        producer[0] = undo.before


cdef int producers_restore(
    ProducerTable* table, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch,
    const ProducerBatch* last, int64_t transaction_first_offset
) noexcept nogil:
    cdef Producer* producer = producers_find(table, producer_id)
    if producer == NULL:
        producer = insert(table, producer_id)
    if producer == NULL:
        return ENOMEM
    producer.epoch = epoch
    producer.coordinator_epoch = coordinator_epoch
    producer.transaction_first_offset = transaction_first_offset
    producer.last_timestamp_ms = last.timestamp_ms
    producer.batch_count = 0
    if last.last_sequence >= 0:
        producer.batches[0] = last[0]
        producer.batch_count = 1
    return 0


cdef int64_t producers_expire(ProducerTable* table, int64_t before_ms) noexcept nogil:
    # In order of the last append, not of its timestamp, which is a client's: so all are looked at.
    cdef Producer* producer = table.oldest
    cdef Producer* following
    cdef int64_t expired = 0
    while producer != NULL:
        following = producer.newer
        if producer.last_timestamp_ms < before_ms and producer.transaction_first_offset < 0:
            remove(table, producer)
            expired += 1
        producer = following
    return expired


cdef void producers_clear(ProducerTable* table) noexcept nogil:
    while table.oldest != NULL:
        remove(table, table.oldest)
    table_free(&table.by_id)
    free(table.undo)
    memset(table, 0, sizeof(ProducerTable))
