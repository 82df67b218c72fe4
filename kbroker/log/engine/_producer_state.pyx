# cython: language_level=3
"""Producers of one partition, as a hash table with the order of their last appends.

Checked and noted inside the group append, under the partition's lock, without the GIL. What a
group notes is tentative: later batches of the same group see it (a duplicate inside one write
gets the first one's offset), and it is undone if the write fails.

The rules: the same first and last sequence as one of the last five batches is a duplicate, looked
for before anything else. Otherwise the epoch must not fall; in the same epoch the sequence must
follow the last one (INT32_MAX is followed by 0); in a new epoch it must be 0. A producer that the
partition does not know may begin with any sequence: its state may have expired or been deleted.

A transactional batch needs an open transaction of its epoch here, or opens one with the guard of
its verification (`_guards.pyx`); first batches whose producer has an epoch for each transaction
begin at 0. A marker ends the transaction; it has an epoch of the producer, or where its producer
has an epoch for each transaction the one after that. What another replica has decided, or the log
has, is noted and not judged.

Transactions stand in the order of their first offsets until the high watermark is above their
markers: the first of them holds the last stable offset.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove, memset

from kbroker.core._error_codes cimport (
    DUPLICATE_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, NO_ERROR,
    OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTION_COORDINATOR_FENCED)
from kbroker.core._limits cimport PRODUCERS_MAX
from kbroker.core._list cimport linked_append, linked_insert, linked_remove
from kbroker.core._live_objects cimport LIVE_PRODUCERS, live_add
from kbroker.core._name_hash cimport name_hash
from kbroker.core._table cimport table_find, table_free, table_put, table_remove, table_room
from kbroker.log.engine._guards cimport (
    Verification, guards_clear, guards_end, guards_end_by_marker, guards_expire, guards_find,
    guards_wait)
from kbroker.log.engine._markers cimport marker_read, may_be_marker
from kbroker.log.engine._records cimport CONTROL_BIT, TRANSACTIONAL_BIT, Header, has_producer
from kbroker.log.engine._types cimport (
    NO_GUARD_NEEDED, Batch, Bound, Marker, unknown_bound)

cdef enum:
    EPOCH_PER_TRANSACTION = 2     # the transaction version from which on there is one
    EVICTION_LOOKS_MAX = 16       # for one without an open transaction


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


cdef void evict(ProducerTable* table) noexcept nogil:
    # The oldest that has no open transaction and may not have to be what it was before this write;
    # those that have one count as new. None goes where the oldest ones all have one: they are
    # looked at by one new producer each, not all by all.
    cdef Producer* producer
    cdef uint32_t _look
    for _look in range(min(<uint32_t>EVICTION_LOOKS_MAX, table.by_id.count)):
        producer = table.oldest
        if producer.transaction == NULL and producer.written_in != table.write:
            remove(table, producer)
            table.evicted += 1
            return
        unlink_order(table, producer)
        make_newest(table, producer)


cdef Producer* insert(ProducerTable* table, int64_t producer_id) noexcept nogil:
    cdef Producer* producer
    if table_room(&table.by_id, hash_of_producer) != 0:
        return NULL
    if table.by_id.count >= PRODUCERS_MAX:
        evict(table)
    producer = <Producer*>calloc(1, sizeof(Producer))
    if producer == NULL:
        return NULL
    live_add(LIVE_PRODUCERS, 1)
    producer.producer_id = producer_id
    producer.coordinator_epoch = -1
    producer.epoch = -1
    producer.written_in = -1
    table_put(&table.by_id, producer, hash_of_id(producer_id))
    make_newest(table, producer)
    return producer


# --- Transactions ---------------------------------------------------------------------------------

cdef Transaction* new_transaction(
    ProducerTable* table, int64_t producer_id, int64_t first_offset, const Bound* start
) noexcept nogil:
    # NULL: no memory.
    cdef Transaction* before = table.last_transaction
    cdef Transaction* transaction = <Transaction*>calloc(1, sizeof(Transaction))
    if transaction == NULL:
        return NULL
    transaction.producer_id = producer_id
    transaction.first_offset = first_offset
    transaction.marker_offset = -1
    transaction.start = start[0]
    while before != NULL and before.first_offset > first_offset:    # only from a snapshot
        before = before.earlier
    linked_insert(&table.first_transaction, &table.last_transaction, transaction,
                  &transaction.earlier, before, "transactions: neighbours name each other")
    return transaction


cdef int begin_transaction(
    ProducerTable* table, Producer* producer, int64_t first_offset, const Bound* start
) noexcept nogil:
    # 0 or ENOMEM.
    producer.transaction = new_transaction(table, producer.producer_id, first_offset, start)
    return 0 if producer.transaction != NULL else ENOMEM


cdef void forget_transaction(ProducerTable* table, Transaction* transaction) noexcept nogil:
    linked_remove(&table.first_transaction, &table.last_transaction, transaction,
                  &transaction.earlier, "transactions: neighbours of a gone one name it")
    free(transaction)


cdef void unlink_ended(ProducerTable* table, Transaction* transaction) noexcept nogil:
    linked_remove(&table.first_ended, &table.last_ended, transaction, &transaction.ended_before,
                  "transactions: one that has ended is known")


cdef void producers_replicated(ProducerTable* table, int64_t high_watermark) noexcept nogil:
    cdef Transaction* transaction = table.first_ended
    while transaction != NULL and transaction.marker_offset < high_watermark:
        unlink_ended(table, transaction)
        forget_transaction(table, transaction)
        transaction = table.first_ended


cdef void producers_forget_positions(ProducerTable* table, int64_t segment_base) noexcept nogil:
    cdef Transaction* transaction = table.first_transaction
    while transaction != NULL:
        if transaction.start.segment_base == segment_base:
            transaction.start.position = -1
        transaction = transaction.later


cdef int64_t last_stable_after(
    const ProducerTable* table, const Transaction* ending, int64_t marker_offset
) noexcept nogil:
    cdef const Transaction* transaction = table.first_transaction
    while transaction != NULL:
        if transaction.marker_offset < 0 and transaction != ending:
            return transaction.first_offset
        transaction = transaction.later
    return marker_offset + 1


cdef int room_for_aborted(ProducerTable* table) noexcept nogil:
    # For one more. 0 or ENOMEM.
    cdef AbortedEntry* aborted
    cdef int32_t wanted
    if table.aborted_count < table.aborted_max:
        return 0
    wanted = table.aborted_max * 2 if table.aborted_max else 8
    aborted = <AbortedEntry*>realloc(table.aborted, <size_t>wanted * sizeof(AbortedEntry))
    if aborted == NULL:
        return ENOMEM
    table.aborted = aborted
    table.aborted_max = wanted
    return 0


cdef void end_with_marker(
    ProducerTable* table, Transaction* transaction, int64_t offset
) noexcept nogil:
    transaction.marker_offset = offset
    linked_append(&table.first_ended, &table.last_ended, transaction, &transaction.ended_before,
                  "transactions: nothing has ended after the last")


cdef void end_transaction(
    ProducerTable* table, Producer* producer, const Marker* marker, int64_t offset
) noexcept nogil:
    cdef Transaction* transaction = producer.transaction
    cdef AbortedEntry* entry
    if transaction == NULL:
        return
    if not marker.committed:
        entry = &table.aborted[table.aborted_count]
        table.aborted_count += 1
        entry.producer_id = producer.producer_id
        entry.first_offset = transaction.first_offset
        entry.last_offset = offset
        entry.last_stable = last_stable_after(table, transaction, offset)
    end_with_marker(table, transaction, offset)
    producer.transaction = NULL


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


cdef int is_duplicate(
    Producer* producer, const Batch* batch, int64_t log_end_offset
) noexcept nogil:
    cdef ProducerBatch* found = NULL
    if batch.producer_epoch == producer.epoch and batch.base_sequence >= 0:
        found = find_duplicate(
            producer, batch.base_sequence,
            sequence_after(batch.base_sequence, batch.record_count - 1))
    return found != NULL and found.last_offset < log_end_offset


cdef int16_t check_batch(
    Producer* producer, const Batch* batch, ProducerBatch** duplicate
) noexcept nogil:
    cdef int32_t last_sequence = -1
    if batch.producer_epoch < producer.epoch:
        return INVALID_PRODUCER_EPOCH
    if batch.base_sequence < 0:   # a coordinator's
        return NO_ERROR
    if batch.producer_epoch > producer.epoch:
        return NO_ERROR if batch.base_sequence == 0 else OUT_OF_ORDER_SEQUENCE_NUMBER
    duplicate[0] = find_duplicate(
        producer, batch.base_sequence, sequence_after(batch.base_sequence, batch.record_count - 1))
    if duplicate[0] != NULL:
        return NO_ERROR
    if producer.batch_count:
        last_sequence = producer.batches[producer.batch_count - 1].last_sequence
    if batch.base_sequence != sequence_after(last_sequence, 1):
        return OUT_OF_ORDER_SEQUENCE_NUMBER
    if producer.transaction != NULL and not batch.attributes & TRANSACTIONAL_BIT:
        return INVALID_TXN_STATE
    return NO_ERROR


cdef int is_as_seen(
    const ProducerTable* table, const Producer* producer, const Marker* marker
) noexcept nogil:
    # Whether nothing has come of the transaction since it was looked at, nor is about to come.
    return (producer != NULL and producer.transaction != NULL
            and producer.transaction.first_offset == marker.first_offset
            and last_offset_of(producer) == marker.last_offset
            and not guards_wait(&table.guards, producer.producer_id))


cdef int16_t check_marker(
    const ProducerTable* table, const Producer* producer, const Batch* batch
) noexcept nogil:
    cdef const Marker* marker = batch.marker
    if marker.first_offset >= 0 and not is_as_seen(table, producer, marker):
        return INVALID_TXN_STATE
    if producer == NULL and batch.producer_epoch >= -1:
        return NO_ERROR if marker.coordinator_epoch >= -1 else TRANSACTION_COORDINATOR_FENCED
    if producer == NULL or batch.producer_epoch < producer.epoch:
        return INVALID_PRODUCER_EPOCH
    # It may be the same one again, whose answer was lost.
    if (marker.transaction_version >= EPOCH_PER_TRANSACTION
            and batch.producer_epoch == producer.epoch and producer.transaction != NULL):
        return INVALID_PRODUCER_EPOCH
    if marker.coordinator_epoch < producer.coordinator_epoch:
        return TRANSACTION_COORDINATOR_FENCED
    return DUPLICATE_SEQUENCE_NUMBER if is_late_copy(producer, marker) else NO_ERROR


cdef int16_t check_first_of_transaction(
    ProducerTable* table, Producer* producer, const Batch* batch, ProducerBatch** duplicate
) noexcept nogil:
    cdef Verification* verification
    if producer != NULL:
        if batch.producer_epoch < producer.epoch:
            return INVALID_PRODUCER_EPOCH
        if batch.producer_epoch == producer.epoch and batch.base_sequence >= 0:
            duplicate[0] = find_duplicate(
                producer, batch.base_sequence,
                sequence_after(batch.base_sequence, batch.record_count - 1))
            if duplicate[0] != NULL:
                return NO_ERROR
    if batch.guard == NO_GUARD_NEEDED:
        return NO_ERROR if producer == NULL else check_batch(producer, batch, duplicate)
    verification = guards_find(&table.guards, batch.producer_id)
    if verification == NULL or verification.guard != batch.guard:
        return INVALID_TXN_STATE
    if batch.base_sequence > verification.lowest_sequence:
        return OUT_OF_ORDER_SEQUENCE_NUMBER  # one before it is still being verified
    if (verification.bumps_epoch and batch.base_sequence > 0
            and (producer == NULL or producer.batch_count == 0)):
        return OUT_OF_ORDER_SEQUENCE_NUMBER
    return NO_ERROR if producer == NULL else check_batch(producer, batch, duplicate)


cdef int16_t producers_check(
    ProducerTable* table, const Batch* batch, ProducerBatch** duplicate
) noexcept nogil:
    cdef Producer* producer = producers_find(table, batch.producer_id)
    duplicate[0] = NULL
    if batch.attributes & TRANSACTIONAL_BIT:
        if batch.marker != NULL:
            return check_marker(table, producer, batch)
        if not has_transaction(producer, batch.producer_epoch):
            return check_first_of_transaction(table, producer, batch, duplicate)
    return NO_ERROR if producer == NULL else check_batch(producer, batch, duplicate)


cdef int remember(
    ProducerTable* table, Producer* producer, int is_new, int is_marker
) noexcept nogil:
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
    table.undo[table.undo_count].is_marker = is_marker
    table.undo_count += 1
    producer.written_in = table.write
    return 0


cdef Producer* to_change(
    ProducerTable* table, Producer* producer, int64_t producer_id, int is_marker
) noexcept nogil:
    # Its state before that is remembered; it is made where it was not found. NULL: no memory.
    cdef int is_new = producer == NULL
    if is_new:
        producer = insert(table, producer_id)
        if producer == NULL:
            return NULL
    if remember(table, producer, is_new, is_marker) != 0:
        if is_new:
            remove(table, producer)
        return NULL
    return producer


cdef inline void set_epoch(Producer* producer, int16_t epoch) noexcept nogil:
    if epoch != producer.epoch:
        producer.batch_count = 0
        producer.epoch = epoch


cdef ProducerBatch* next_batch(Producer* producer) noexcept nogil:
    # Its place among those that are kept; the oldest one makes room.
    if producer.batch_count == PRODUCER_BATCHES_KEPT:
        memmove(&producer.batches[0], &producer.batches[1],
                (PRODUCER_BATCHES_KEPT - 1) * sizeof(ProducerBatch))
    else:
        producer.batch_count += 1
    return &producer.batches[producer.batch_count - 1]


cdef inline void appended_now(
    ProducerTable* table, Producer* producer, int64_t timestamp_ms
) noexcept nogil:
    producer.last_timestamp_ms = timestamp_ms
    if table.newest != producer:
        unlink_order(table, producer)
        make_newest(table, producer)


cdef int producers_note(
    ProducerTable* table, int64_t producer_id, int16_t epoch, int32_t base_sequence,
    int32_t last_offset_delta, int64_t base_offset, int64_t timestamp_ms, const Bound* start
) noexcept nogil:
    cdef Producer* producer = producers_find(table, producer_id)
    cdef ProducerBatch* batch
    # To roll back one needs its state before the write, and before each beginning of a transaction.
    if (producer == NULL or producer.written_in != table.write
            or (start != NULL and producer.transaction == NULL)):
        producer = to_change(table, producer, producer_id, 0)
    if producer == NULL:
        return ENOMEM
    if (start != NULL and producer.transaction == NULL
            and begin_transaction(table, producer, base_offset, start) != 0):
        take_back(table)
        return ENOMEM
    set_epoch(producer, epoch)
    batch = next_batch(producer)
    batch.last_sequence = (
        sequence_after(base_sequence, last_offset_delta) if base_sequence >= 0 else -1)
    batch.offset_delta = last_offset_delta
    batch.last_offset = base_offset + last_offset_delta
    batch.timestamp_ms = timestamp_ms
    appended_now(table, producer, timestamp_ms)
    return 0


cdef int producers_note_marker(
    ProducerTable* table, int64_t producer_id, int16_t epoch, const Marker* marker, int64_t offset,
    int64_t timestamp_ms
) noexcept nogil:
    cdef Producer* producer
    if room_for_aborted(table) != 0:
        return ENOMEM
    producer = to_change(table, producers_find(table, producer_id), producer_id, 1)
    if producer == NULL:
        return ENOMEM
    end_transaction(table, producer, marker, offset)
    set_epoch(producer, epoch)
    producer.coordinator_epoch = marker.coordinator_epoch
    note_outcome(producer, marker)
    appended_now(table, producer, timestamp_ms)
    return 0


cdef int producers_note_stored(
    ProducerTable* table, const Header* header, const uint8_t* records, int64_t length,
    int64_t segment_base, int64_t position
) noexcept nogil:
    cdef Bound start
    cdef Marker marker
    if not has_producer(header):
        return 0
    if may_be_marker(header):
        if not marker_read(header, records, length, &marker):
            return 0
        return producers_note_marker(
            table, header.producer_id, header.producer_epoch, &marker, header.base_offset,
            header.max_timestamp_ms)
    if header.attributes & CONTROL_BIT:
        return 0
    start.offset = header.base_offset
    start.segment_base = segment_base
    start.position = position
    return producers_note(
        table, header.producer_id, header.producer_epoch, header.base_sequence,
        header.last_offset_delta, header.base_offset, header.max_timestamp_ms,
        &start if header.attributes & TRANSACTIONAL_BIT else NULL)


cdef void producers_free_undo(ProducerTable* table) noexcept nogil:
    free(table.undo)
    table.undo = NULL
    table.undo_max = 0


cdef void producers_end_guards(ProducerTable* table) noexcept nogil:
    cdef ProducerUndo* undo
    cdef int32_t at
    for at in range(table.undo_count):
        undo = &table.undo[at]
        if undo.is_marker:
            guards_end_by_marker(&table.guards, undo.producer.producer_id, undo.producer.epoch)
        elif undo.producer.transaction != NULL:
            guards_end(&table.guards, undo.producer.producer_id)


cdef void take_back(ProducerTable* table) noexcept nogil:
    # The last change.
    cdef ProducerUndo* undo
    cdef Producer* producer
    cdef Transaction* before
    table.undo_count -= 1
    undo = &table.undo[table.undo_count]
    producer = undo.producer
    before = undo.before.transaction
    if producer.transaction != NULL and producer.transaction != before:
        forget_transaction(table, producer.transaction)
        producer.transaction = NULL
    if before != NULL and before.marker_offset >= 0:
        unlink_ended(table, before)
        before.marker_offset = -1
    if undo.is_new:
        remove(table, producer)
        return
    # All but the links, which say where the entry is now.
    undo.before.older = producer.older
    undo.before.newer = producer.newer
    producer[0] = undo.before


cdef void producers_roll_back(ProducerTable* table) noexcept nogil:
    while table.undo_count > 0:
        take_back(table)
    table.aborted_count = 0
    if table.undo_max > UNDO_KEPT_MAX:
        producers_free_undo(table)
    table.write += 1


cdef int producers_restore(
    ProducerTable* table, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch,
    const ProducerBatch* batch, int64_t transaction_first_offset
) noexcept nogil:
    cdef Producer* producer = producers_find(table, producer_id)
    cdef Bound start = unknown_bound(transaction_first_offset)
    if producer == NULL:
        producer = insert(table, producer_id)
    if producer == NULL:
        return ENOMEM
    set_epoch(producer, epoch)
    producer.coordinator_epoch = coordinator_epoch
    producer.last_timestamp_ms = batch.timestamp_ms
    if batch.last_offset > last_offset_of(producer):
        next_batch(producer)[0] = batch[0]
    if transaction_first_offset < 0 or producer.transaction != NULL:
        return 0
    return begin_transaction(table, producer, transaction_first_offset, &start)


cdef int producers_restore_ended(
    ProducerTable* table, int64_t producer_id, int64_t first_offset, int64_t marker_offset
) noexcept nogil:
    cdef Bound start = unknown_bound(first_offset)
    cdef Transaction* transaction = new_transaction(table, producer_id, first_offset, &start)
    if transaction == NULL:
        return ENOMEM
    end_with_marker(table, transaction, marker_offset)
    return 0


cdef int64_t producers_expire(ProducerTable* table, int64_t before_ms) noexcept nogil:
    # In order of the last append, not of its timestamp, which is a client's: so all are looked at.
    cdef Producer* producer = table.oldest
    cdef Producer* following
    cdef int64_t expired = 0
    while producer != NULL:
        following = producer.newer
        if producer.last_timestamp_ms < before_ms and producer.transaction == NULL:
            remove(table, producer)
            expired += 1
        producer = following
    guards_expire(&table.guards)
    return expired


cdef void producers_clear(ProducerTable* table) noexcept nogil:
    cdef Transaction* transaction
    while table.first_transaction != NULL:
        transaction = table.first_transaction
        table.first_transaction = transaction.later
        free(transaction)
    while table.oldest != NULL:
        remove(table, table.oldest)
    table_free(&table.by_id)
    guards_clear(&table.guards)
    free(table.undo)
    free(table.aborted)
    memset(table, 0, sizeof(ProducerTable))
