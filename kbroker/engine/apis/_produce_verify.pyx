# cython: language_level=3
"""A produce that begins a transaction in a partition waits until its coordinator knows of that.

    plan    each transactional batch is looked up in its partition: if its producer's transaction
            is open there at its epoch, it goes on as any batch does
    guard   otherwise the log makes a guard, and the whole request is parked (`_parked`) with a copy
            of its frames and no watch; Python asks the coordinator (`_hot`, take_asking)
            where this broker is the coordinator and all is plainly right, C answers at once
            (`_produce_join`), and the request goes on
    again   the answer, the deadline or the connection's end completes it. It is queued for a
            handler once more, with its guards (`Request.guards`), and planned again
    append  the log takes the batch only if that guard is still valid: a marker that was written in
            between has ended it (KIP-890)
    let go  what was appended, or will not be, waits for no guard (`_guards.pyx`)

All partitions of a request, and all frames of a train, wait together and ask once: nothing of it is
appended before. Its channel gets no notice that it is locally processed and is not read on, so the
batches of a producer stay in their order. In a train the later batches of a partition have the
guard of the first one.

If there is no answer in time, the error is NOT_ENOUGH_REPLICAS, as in Apache Kafka: a client tries
again and asks for no metadata. Locks: a partition's, one at a time.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.core._arena cimport arena_take
from kbroker.core._atomics cimport kb_load_int, kb_load_ptr
from kbroker.core._error_codes cimport (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NETWORK_EXCEPTION,
    NO_ERROR,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
)
from kbroker.core._figures cimport kb_count
from kbroker.core._require cimport require, take_reference
from kbroker.core._sync cimport kb_now_ns
from kbroker.core._table cimport Table, table_find_or_put, table_init
from kbroker.log.engine._guards cimport guards_let_go
from kbroker.log.engine._records cimport (
    AT_ATTRIBUTES, AT_PRODUCER_EPOCH, AT_PRODUCER_ID, HEADER_BYTES, TRANSACTIONAL_BIT, Header,
    header_read)
from kbroker.log.engine._transactions cimport (
    TRANSACTION_NEEDS_GUARD, TRANSACTION_OPEN, transaction_check_locked)
from kbroker.log.engine._types cimport NO_GUARD_NEEDED, Batch
from kbroker.net._request cimport request_detach
from kbroker.net._request_channel cimport request_channel_push
from kbroker.net._types cimport ACTION_CLOSE, CAUSE_NO_MEMORY, Request
from kbroker.protocol._cursor cimport get_i16, get_i64
from kbroker.replica._partition cimport (
    FROM_LEADER, Partition, partition_acquire, partition_lock, partition_may_answer_locked,
    partition_release, partition_unlock)
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._answers cimport worker_answer
from kbroker.engine.worker._asked_rights cimport asked_rights_drop
from kbroker.engine.worker._context cimport (
    REASON_NONE, WAITS_FOR_COORDINATOR, HotContext, HotWorker, ParkedRequest, TransactionHooks,
    WaiterKind)
from kbroker.engine.apis._produce_plan cimport (
    FoundBatch, PlanWalk, ProduceFrame, ProducePartition, ProducePlan, plan_next)
from kbroker.engine.waiting._parked cimport (
    parked_abandon, parked_ask, parked_drop, parked_new, parked_wait)


cdef WaiterKind _VERIFICATION = WaiterKind(
    waits_for=WAITS_FOR_COORDINATOR, complete=_complete, give_up=_give_up,
    free_kept=_free)


# --- plan ----------------------------------------------------------------------------------------

cdef int16_t produce_note_transactional(
    ProducePlan* plan, ProduceFrame* frame, const Batch* batch
) noexcept nogil:
    # A request writes for one producer.
    cdef int64_t producer_id
    cdef int16_t producer_epoch
    if batch.error != NO_ERROR or batch.length_bytes < HEADER_BYTES:
        return NO_ERROR           # it is refused for another reason
    producer_id = get_i64(batch.data + AT_PRODUCER_ID)
    producer_epoch = get_i16(batch.data + AT_PRODUCER_EPOCH)
    if producer_id < 0:
        return NO_ERROR
    plan.transactional_count += 1
    if frame.producer_id < 0:
        frame.producer_id = producer_id
        frame.producer_epoch = producer_epoch
    elif frame.producer_id != producer_id or frame.producer_epoch != producer_epoch:
        return INVALID_PRODUCER_ID_MAPPING
    return NO_ERROR


cdef int _is_transactional(const Batch* batch) noexcept nogil:
    return (
        batch.error == NO_ERROR
        and batch.length_bytes >= HEADER_BYTES
        and batch.data[AT_ATTRIBUTES + 1] & TRANSACTIONAL_BIT
        and get_i64(batch.data + AT_PRODUCER_ID) >= 0
    )


cdef int64_t _guard_of(HotWorker* worker, ProducePartition* place, int adds) noexcept nogil:
    # The guard of a batch that needs one; 0: it goes on, perhaps with an error.
    cdef Partition* partition = place.partition
    cdef Batch* batch = &place.batch
    cdef int64_t guard = 0
    cdef int verdict = TRANSACTION_OPEN
    cdef Header header
    if not adds and not kb_load_int(&worker.context.verifies):
        batch.guard = NO_GUARD_NEEDED
        return 0
    header_read(batch.data, &header)
    batch.attributes = header.attributes
    batch.producer_id = header.producer_id
    batch.producer_epoch = header.producer_epoch
    batch.base_sequence = header.base_sequence
    batch.record_count = header.record_count
    partition_lock(partition)
    if partition_may_answer_locked(partition, FROM_LEADER) == NO_ERROR:  # else the append says so
        verdict = transaction_check_locked(partition.log, batch, &guard)
    partition_unlock(partition)
    if verdict == TRANSACTION_NEEDS_GUARD:
        require(guard > 0, "produce: a transaction that is not open here has a guard", guard, 1)
        return guard
    if verdict != TRANSACTION_OPEN:
        batch.error = <int16_t>verdict
    return 0


cdef int _is_of_producer(const void* item, const void* other) noexcept nogil:
    cdef const FoundBatch* one = <const FoundBatch*>item
    cdef const FoundBatch* two = <const FoundBatch*>other
    return (
        one.place.partition == two.place.partition
        and one.frame.producer_id == two.frame.producer_id
        and one.frame.producer_epoch == two.frame.producer_epoch
    )


cdef int produce_verify(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    cdef int adds = plan.request.api_version >= ADDS_FROM
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place = plan_next(&walk)
    cdef FoundBatch* found
    cdef FoundBatch* first
    cdef Table seen               # of a train: a partition may come again
    cdef int32_t ordinal = 0
    cdef int32_t count = 0
    if plan.request.guards != NULL:
        return 0                  # it has been asked for
    found = <FoundBatch*>arena_take(
        &worker.arena, sizeof(FoundBatch) * (<size_t>plan.transactional_count + 1))
    if found == NULL or table_init(&seen, &worker.arena, plan.transactional_count) != 0:
        plan.request.action = ACTION_CLOSE
        plan.request.cause = CAUSE_NO_MEMORY
        worker_answer(worker, plan.request)
        return 1
    while place != NULL:
        if _is_transactional(&place.batch):
            found[count].frame = walk.frame
            found[count].topic = &walk.frame.topics[walk.topic]
            found[count].place = place
            found[count].ordinal = ordinal
            first = <FoundBatch*>table_find_or_put(
                &seen, <uint32_t>((<size_t>place.partition >> 6) * 2654435761u), _is_of_producer,
                &found[count])
            found[count].is_held = first == &found[count]
            if found[count].is_held:
                first.guard = _guard_of(worker, place, adds)
            else:
                found[count].guard = first.guard
                place.batch.guard = first.place.batch.guard
            count += 1
        ordinal += 1
        place = plan_next(&walk)
    count = _only_guarded(found, count)
    if count == 0 or _is_verified_here(worker, plan, found, count):
        return 0
    return _wait(worker, plan, found, count)


cdef int _is_verified_here(
    HotWorker* worker, ProducePlan* plan, FoundBatch* found, int32_t count
) noexcept nogil:
    # Where this broker is the coordinator. A request that Python looks into waits as well: it comes
    # again with its guards.
    cdef TransactionHooks* hooks = <TransactionHooks*>kb_load_ptr(
        <void**>&worker.context.transactions)
    if hooks == NULL or plan.reason != REASON_NONE:
        return 0
    plan.unverified = found
    plan.unverified_count = count
    if hooks.produce_verify(worker, plan):
        return 1
    plan.unverified = NULL
    return 0


cdef int produce_await_coordinator(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place
    plan.joins = 0
    if _wait(worker, plan, plan.unverified, plan.unverified_count):
        return 1
    plan.unverified = NULL        # they were let go
    place = plan_next(&walk)
    while place != NULL:
        if place.batch.error == NO_ERROR:
            _refuse(&place.batch, NOT_ENOUGH_REPLICAS, NETWORK_EXCEPTION)
        place = plan_next(&walk)
    return 0


cdef int32_t _only_guarded(FoundBatch* found, int32_t count) noexcept nogil:
    cdef int32_t kept = 0
    cdef int32_t i
    for i in range(count):
        if found[i].guard > 0:
            found[kept] = found[i]
            kept += 1
    return kept


# --- wait ----------------------------------------------------------------------------------------

cdef inline size_t _rounded(size_t count) noexcept nogil:
    return (count + 7) & ~<size_t>7


cdef void* _room(uint8_t** at, size_t count) noexcept nogil:
    cdef uint8_t* place = at[0]
    at[0] += _rounded(count)
    return place


cdef uint8_t* _copied(uint8_t** at, const uint8_t* source, int32_t length) noexcept nogil:
    cdef uint8_t* place = <uint8_t*>_room(at, <size_t>length)
    memcpy(place, source, <size_t>length)
    return place


cdef int same_transaction(const FoundBatch* one, const FoundBatch* two) noexcept nogil:
    # Frames of a train are of one, unless a proxy gathers frames of several clients.
    cdef const ProduceFrame* a = one.frame
    cdef const ProduceFrame* b = two.frame
    return a == b or (
        a.producer_id == b.producer_id
        and a.producer_epoch == b.producer_epoch
        and a.transactional_id_length == b.transactional_id_length
        and memcmp(a.transactional_id, b.transactional_id, <size_t>a.transactional_id_length) == 0
    )


cdef size_t _bytes_of(const FoundBatch* found, int32_t count) noexcept nogil:
    cdef size_t total = _rounded(sizeof(Verification))
    cdef int32_t i
    for i in range(count):
        total += _rounded(sizeof(UnverifiedPartition))
        total += _rounded(<size_t>found[i].topic.entry.key.name_length)
        if i == 0 or not same_transaction(&found[i], &found[i - 1]):
            total += _rounded(sizeof(UnverifiedTransaction))
            total += _rounded(<size_t>found[i].frame.transactional_id_length)
    return total


cdef Guards* _guards(
    const ProducePlan* plan, const FoundBatch* found, int32_t count
) noexcept nogil:
    cdef Guards* guards = <Guards*>calloc(
        1, sizeof(Guards) + sizeof(GuardedBatch) * <size_t>count)
    cdef int32_t i
    if guards == NULL:
        return NULL
    guards.dequeued_ns = plan.request.dequeued_ns
    guards.count = count
    guards.batches = <GuardedBatch*>(<char*>guards + sizeof(Guards))
    for i in range(count):
        guards.batches[i].ordinal = found[i].ordinal
        guards.batches[i].guard = found[i].guard
        guards.batches[i].producer_id = found[i].frame.producer_id
        guards.batches[i].is_held = <int8_t>found[i].is_held
        guards.batches[i].error = NOT_ENOUGH_REPLICAS  # until there is an answer
        guards.batches[i].cause = NETWORK_EXCEPTION
    return guards


cdef Verification* _keep(
    const ProducePlan* plan, const FoundBatch* found, int32_t count, size_t size_bytes
) noexcept nogil:
    cdef uint8_t* at = <uint8_t*>calloc(1, size_bytes)
    cdef Verification* kept
    cdef UnverifiedTransaction* transaction = NULL
    cdef int32_t transactions = 1
    cdef int32_t i
    if at == NULL:
        return NULL
    for i in range(1, count):
        transactions += not same_transaction(&found[i], &found[i - 1])
    kept = <Verification*>_room(&at, sizeof(Verification))
    kept.guards = _guards(plan, found, count)
    if kept.guards == NULL:
        free(kept)
        return NULL
    kept.version = plan.request.api_version
    kept.count = count
    kept.partitions = <UnverifiedPartition*>_room(
        &at, sizeof(UnverifiedPartition) * <size_t>count)
    kept.transactions = <UnverifiedTransaction*>_room(
        &at, sizeof(UnverifiedTransaction) * <size_t>transactions)
    for i in range(count):
        if i == 0 or not same_transaction(&found[i], &found[i - 1]):
            transaction = &kept.transactions[kept.transaction_count]
            kept.transaction_count += 1
            transaction.transactional_id = _copied(
                &at, found[i].frame.transactional_id, found[i].frame.transactional_id_length)
            transaction.id_length = found[i].frame.transactional_id_length
            transaction.producer_id = found[i].frame.producer_id
            transaction.producer_epoch = found[i].frame.producer_epoch
        kept.partitions[i].topic = _copied(
            &at, found[i].topic.entry.key.name, found[i].topic.entry.key.name_length)
        kept.partitions[i].topic_length = found[i].topic.entry.key.name_length
        kept.partitions[i].index = found[i].place.index
        kept.partitions[i].transaction = kept.transaction_count - 1
        kept.partitions[i].partition = found[i].place.partition
        partition_acquire(found[i].place.partition)
    return kept


cdef ParkedRequest* _parked(
    HotWorker* worker, ProducePlan* plan, const FoundBatch* found, int32_t count
) noexcept nogil:
    # NULL: it cannot wait.
    cdef size_t size_bytes = _bytes_of(found, count)
    cdef size_t guards_bytes = sizeof(Guards) + sizeof(GuardedBatch) * <size_t>count
    cdef ParkedRequest* parked = parked_new(
        worker, &_VERIFICATION, plan.request, 0,
        <int64_t>(size_bytes + guards_bytes) + plan.request.total_bytes,
        worker.context.verification_ms, 0)
    if parked == NULL:
        return NULL
    parked.kept = _keep(plan, found, count, size_bytes)
    parked.wanted = 1
    if parked.kept == NULL or request_detach(plan.request) != 0:
        parked_abandon(parked)
        return NULL
    return parked


cdef void _refuse(Batch* batch, int16_t error, int16_t cause) noexcept nogil:
    # In Apache Kafka's words, where it has some.
    batch.error = error
    if error == INVALID_TXN_STATE:
        batch.error_message = b"Partition was not added to the transaction"
    elif error != NOT_ENOUGH_REPLICAS:
        return
    elif cause == CONCURRENT_TRANSACTIONS:
        batch.error_message = (
            b"Unable to verify the partition has been added to the transaction. "
            b"Underlying error: CONCURRENT_TRANSACTIONS")
    elif cause == COORDINATOR_LOAD_IN_PROGRESS:
        batch.error_message = (
            b"Unable to verify the partition has been added to the transaction. "
            b"Underlying error: COORDINATOR_LOAD_IN_PROGRESS")
    elif cause == COORDINATOR_NOT_AVAILABLE:
        batch.error_message = (
            b"Unable to verify the partition has been added to the transaction. "
            b"Underlying error: COORDINATOR_NOT_AVAILABLE")
    elif cause == NOT_COORDINATOR:
        batch.error_message = (
            b"Unable to verify the partition has been added to the transaction. "
            b"Underlying error: NOT_COORDINATOR")
    else:
        batch.error_message = (
            b"Unable to verify the partition has been added to the transaction. "
            b"Underlying error: NETWORK_EXCEPTION")
    batch.sends_message = 1


cdef int _wait(
    HotWorker* worker, ProducePlan* plan, const FoundBatch* found, int32_t count
) noexcept nogil:
    cdef ParkedRequest* parked
    cdef int32_t i
    if count == 0:
        return 0
    asked_rights_drop(plan.request)  # when it comes again they are asked for again
    parked = _parked(worker, plan, found, count)
    if parked == NULL:            # its client tries again
        for i in range(count):
            _refuse(&found[i].place.batch, NOT_ENOUGH_REPLICAS, NETWORK_EXCEPTION)
            if found[i].is_held:
                _let_go(found[i].place.partition, found[i].frame.producer_id, found[i].guard, 0)
        return 0
    take_reference(&parked.refs, "produce: one that waits for a coordinator is held")
    if parked_wait(worker, parked):
        kb_count(&worker.parked_produces, 1)
        parked_ask(worker, parked)
        return 1
    _complete(worker, NULL, parked)
    parked_drop(parked)
    parked_drop(parked)
    return 1


# --- again ---------------------------------------------------------------------------------------

cdef void produce_go_on(HotContext* context, ParkedRequest* parked) noexcept nogil:
    cdef Verification* kept = <Verification*>parked.kept
    cdef Request* request = parked.request
    cdef Request* last = request
    require(request.guards == NULL and kept.guards != NULL,
            "produce: a request waits for its coordinator once", request.guards != NULL, 0)
    request.guards = kept.guards
    kept.guards = NULL
    request.next = NULL
    request.waiting_ns = 0
    request_channel_push(context.request_channel, request, &last, kb_now_ns())


cdef void _complete(
    HotWorker* worker, Snapshot* snapshot, ParkedRequest* parked
) noexcept nogil:
    produce_go_on(worker.context, parked)


cdef void _give_up(ParkedRequest* parked) noexcept nogil:
    # Its client has no other batch on its way either: what it sends next overtakes none.
    cdef const Verification* kept = <const Verification*>parked.kept
    cdef const GuardedBatch* guarded
    cdef int32_t i
    for i in range(kept.count):
        guarded = &kept.guards.batches[i]
        if guarded.is_held:
            _let_go(kept.partitions[i].partition, guarded.producer_id, guarded.guard, 1)


cdef void _free(void* kept) noexcept nogil:
    cdef Verification* verification = <Verification*>kept
    cdef int32_t i
    for i in range(verification.count):
        if verification.partitions[i].partition != NULL:
            partition_release(verification.partitions[i].partition)
    free(verification.guards)
    free(kept)


cdef void _let_go(
    Partition* partition, int64_t producer_id, int64_t guard, int refused
) noexcept nogil:
    partition_lock(partition)
    guards_let_go(&partition.log.producers.guards, producer_id, guard, refused)
    partition_unlock(partition)


cdef inline int _is_refused(int16_t error) noexcept nogil:
    # A client sends the batch again after the other errors.
    return error not in (NO_ERROR, NOT_ENOUGH_REPLICAS, CONCURRENT_TRANSACTIONS)


cdef ProducePlan* produce_join(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plans
) noexcept nogil:
    return <ProducePlan*>worker.context.transactions.produce_join(worker, snapshot, plans)


cdef void produce_let_found_go(ProducePlan* plan) noexcept nogil:
    cdef const FoundBatch* found
    cdef int32_t i
    for i in range(plan.unverified_count):
        found = &plan.unverified[i]
        if found.is_held:
            _let_go(found.place.partition, found.frame.producer_id, found.guard, 0)
    plan.unverified = NULL


cdef void produce_let_guards_go(ProducePlan* plan) noexcept nogil:
    cdef Guards* guards = <Guards*>plan.request.guards
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place = plan_next(&walk)
    cdef int32_t ordinal = 0
    cdef int32_t at = 0
    while place != NULL and at < guards.count:
        if guards.batches[at].ordinal == ordinal:
            # Of a partition that is not here any more there are no guards either.
            if guards.batches[at].is_held and place.partition != NULL:
                _let_go(place.partition, guards.batches[at].producer_id, guards.batches[at].guard,
                        _is_refused(guards.batches[at].error))
            guards.batches[at].is_held = 0
            at += 1
        ordinal += 1
        place = plan_next(&walk)


cdef void produce_take_guards(ProducePlan* plan) noexcept nogil:
    cdef const Guards* guards = <const Guards*>plan.request.guards
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place = plan_next(&walk)
    cdef const GuardedBatch* guarded = guards.batches
    cdef const GuardedBatch* end = guards.batches + guards.count
    cdef int32_t ordinal = 0
    plan.request.dequeued_ns = guards.dequeued_ns
    while place != NULL and guarded != end:
        if guarded.ordinal == ordinal:
            place.batch.guard = guarded.guard
            if place.batch.error == NO_ERROR and guarded.error != NO_ERROR:
                _refuse(&place.batch, guarded.error, guarded.cause)
            guarded += 1
        ordinal += 1
        place = plan_next(&walk)
