# cython: language_level=3
"""Produces that begin a transaction in a partition, where this broker is the coordinator: no wait.

    verify  (up to Produce 11) the partitions are in the producer's open transaction: a look into
            the ids, when the request is planned
    join    (from 12 on) they are added to it: all those of a run, one write for each partition of
            __transaction_state, before the first of their batches is appended

Guards are as ever: the log has made them before the look, and a marker that comes in between ends
them. What is not plainly right waits for an answer from Python (`_produce_verify`), which is the
authority: an id that is unknown, of another producer, in another state or with a write under way;
requests of more than one transaction; a log that refuses, is slow or has followers.

The worker's own thread, no GIL. Locks: that of the ids, a shard's, below it the partition's.
"""

from libc.stdint cimport int32_t, int64_t

from kbroker.coordinator.runtime._shards cimport shard_for, shard_error, shard_is_slow
from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.coordinator.txn._moves cimport (
    MOVE_FOR_PYTHON, MOVE_TO_WRITE, MoveVerdict, TxnMove, move_add, move_apply, move_let_go,
    transaction_holds)
from kbroker.coordinator.txn._places cimport Place, places_sort
from kbroker.coordinator.txn._writes cimport RunMoves, moves_add, moves_init
from kbroker.core._arena cimport arena_take
from kbroker.core._figures cimport kb_count
from kbroker.core._limits cimport RUN_REQUESTS_MAX
from kbroker.engine.apis._produce_plan cimport ProduceFrame, ProducePlan
from kbroker.engine.apis._produce_verify cimport (
    ADDS_FROM, FoundBatch, produce_await_coordinator, same_transaction)
from kbroker.engine.apis._txn_write cimport (
    TxnTouched, published_topic, touched_init, touched_wake, transactions_now_ms, transactions_of,
    txn_write)
from kbroker.engine.worker._context cimport HotWorker, TransactionHooks
from kbroker.replica._metadata_view cimport ViewTopic
from kbroker.replica._snapshot cimport Snapshot

cdef enum:
    CLIENT_VERSION = 2            # of transactions, as the record has it


# A plan of a run, and its move.
cdef struct Joining:
    ProducePlan* plan
    MoveVerdict verdict
    TxnMove move


cdef Place* _places(HotWorker* worker, const ProducePlan* plan, int32_t* count) noexcept nogil:
    # Sorted; NULL: no memory.
    cdef const FoundBatch* found = plan.unverified
    cdef Place* places = <Place*>arena_take(
        &worker.arena, sizeof(Place) * <size_t>plan.unverified_count)
    cdef int32_t i
    if places == NULL:
        return NULL
    for i in range(plan.unverified_count):
        places[i].topic = found[i].topic.entry.key.name
        places[i].topic_length = found[i].topic.entry.key.name_length
        places[i].index = found[i].place.index
    count[0] = places_sort(places, plan.unverified_count)
    return places


cdef int _are_published(HotWorker* worker, const Place* places, int32_t count) noexcept nogil:
    cdef const ViewTopic* topic = NULL
    cdef int32_t i
    for i in range(count):
        if i == 0 or places[i].topic != places[i - 1].topic:
            topic = published_topic(worker, places[i].topic, places[i].topic_length)
        if topic == NULL or places[i].index >= topic.partition_count:
            return 0
    return 1


cdef int _is_one_transaction(const ProducePlan* plan) noexcept nogil:
    cdef const FoundBatch* found = plan.unverified
    cdef int32_t i
    for i in range(1, plan.unverified_count):
        if not same_transaction(&found[i - 1], &found[i]):
            return 0
    return found[0].frame.transactional_id != NULL


cdef void _set_guards(const ProducePlan* plan) noexcept nogil:
    cdef const FoundBatch* found = plan.unverified
    cdef int32_t i
    for i in range(plan.unverified_count):
        found[i].place.batch.guard = found[i].guard


cdef int produce_verify_here(HotWorker* worker, void* of) noexcept nogil:
    cdef ProducePlan* plan = <ProducePlan*>of
    cdef TransactionHooks* hooks = transactions_of(worker)
    cdef const ProduceFrame* frame = plan.unverified[0].frame
    cdef Place* places
    cdef Shard* shard
    cdef int32_t count = 0
    if hooks == NULL or not _is_one_transaction(plan):
        return 0
    shard = shard_for(hooks.shards, frame.transactional_id, frame.transactional_id_length)
    if shard == NULL or shard_error(shard) != 0:
        return 0
    if plan.request.api_version >= ADDS_FROM:
        if shard_is_slow(shard):
            return 0
        plan.joins = 1
        _set_guards(plan)
        return 1
    places = _places(worker, plan, &count)
    if places == NULL or not transaction_holds(
        hooks.ids, frame.transactional_id, frame.transactional_id_length, frame.producer_id,
        frame.producer_epoch, places, count,
    ):
        return 0
    _set_guards(plan)
    kb_count(&worker.transaction_joins, 1)
    return 1


# --- join ----------------------------------------------------------------------------------------

cdef void _claim(
    HotWorker* worker, TransactionHooks* hooks, Joining* joining, int64_t now_ms
) noexcept nogil:
    cdef const ProduceFrame* frame = joining.plan.unverified[0].frame
    cdef int32_t count = 0
    cdef Place* places = _places(worker, joining.plan, &count)
    joining.verdict = MOVE_FOR_PYTHON
    joining.move.id = frame.transactional_id
    joining.move.id_length = frame.transactional_id_length
    joining.move.shard = shard_for(hooks.shards, joining.move.id, joining.move.id_length)
    if (places != NULL and joining.move.shard != NULL
            and _are_published(worker, places, count)):
        joining.verdict = move_add(
            hooks.ids, &joining.move, frame.producer_id, frame.producer_epoch, places, count,
            CLIENT_VERSION, now_ms)


cdef int _has_joined(TransactionHooks* hooks, Joining* joining) noexcept nogil:
    if joining.verdict != MOVE_TO_WRITE:
        return joining.verdict != MOVE_FOR_PYTHON
    if joining.move.fails:
        move_let_go(hooks.ids, &joining.move)
        return 0
    return move_apply(hooks.ids, &joining.move)


cdef int _write(
    HotWorker* worker, Snapshot* snapshot, TransactionHooks* hooks, Joining* all, int count
) noexcept nogil:
    # -1: no memory, and nothing is claimed.
    cdef RunMoves moves
    cdef TxnTouched touched
    cdef int64_t now_ms = transactions_now_ms(hooks)
    cdef int i
    if (moves_init(&moves, &worker.arena) != 0
            or touched_init(worker, &touched, RUN_REQUESTS_MAX) != 0):
        return -1
    for i in range(count):
        _claim(worker, hooks, &all[i], now_ms)
        if all[i].verdict == MOVE_TO_WRITE:
            moves_add(&moves, &all[i].move)
    txn_write(worker, &moves, &touched, now_ms)
    touched_wake(worker, snapshot, &touched)
    return 0


cdef void* produce_join(HotWorker* worker, Snapshot* snapshot, void* of) noexcept nogil:
    cdef TransactionHooks* hooks = transactions_of(worker)
    cdef ProducePlan* plans = <ProducePlan*>of
    cdef ProducePlan** place = &plans
    cdef ProducePlan* plan
    cdef Joining* all = <Joining*>arena_take(&worker.arena, sizeof(Joining) * RUN_REQUESTS_MAX)
    cdef int count = 0
    cdef int written = -1
    cdef int at = 0
    plan = plans
    while plan != NULL and all != NULL:
        if plan.joins:
            all[count].plan = plan
            count += 1
        plan = plan.next
    if hooks != NULL and all != NULL:
        written = _write(worker, snapshot, hooks, all, count)
    while place[0] != NULL:
        plan = place[0]
        if plan.joins:
            if written == 0 and _has_joined(hooks, &all[at]):
                kb_count(&worker.transaction_joins, 1)
            elif produce_await_coordinator(worker, plan):
                place[0] = plan.next
                plan.next = NULL
                at += 1
                continue
            at += 1
        place = &plan.next
    return plans
