# cython: language_level=3
"""AddPartitionsToTxn of clients for a run, without the GIL: partitions go into transactions.

    plan    parse, look the topics up, claim the id (`coordinator/txn/_moves`); no effect
    write   the records of a run, one write for each partition of __transaction_state
    answer  every partition without an error: anything else goes to Python

Python (handlers/add_partitions_to_txn.py) says what the API means and is the authority; the answers
here are its bytes. It gets, whole and in its place in the connection's order, whatever is not
plainly right: a partition that is not there or of an internal topic, an id that is unknown, of
another producer or with a write under way, a log that refuses or has followers. Up to that moment
nothing has been written.

Protocol: AddPartitionsToTxnRequest 0-3 (flexible from 3); later versions are brokers' and Python's.
Threads: the worker's own. Locks: that of the ids, a shard's, below it the partition's.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.runtime._shards cimport shard_error, shard_for
from kbroker.coordinator.txn._moves cimport (
    MOVE_FOR_PYTHON, MOVE_TO_WRITE, MoveVerdict, TxnMove, move_add, move_apply, move_let_go)
from kbroker.coordinator.txn._places cimport Place, places_sort
from kbroker.coordinator.txn._writes cimport RunMoves, moves_add, moves_init
from kbroker.core._arena cimport arena_take
from kbroker.core._figures cimport kb_count
from kbroker.core._limits cimport REQUEST_PARTITIONS_MAX, RUN_REQUESTS_MAX
from kbroker.core._list cimport list_append
from kbroker.engine.apis._txn_write cimport (
    TxnTouched, is_set_aside, published_topic, touched_init, touched_wake, transactions_now_ms,
    transactions_of, txn_write)
from kbroker.engine.worker._answers cimport cold_push, worker_hand_over
from kbroker.engine.worker._asked_rights cimport client_may
from kbroker.engine.worker._charges cimport worker_answer_charged
from kbroker.engine.worker._context cimport REASON_TRANSACTION, HotWorker, TransactionHooks
from kbroker.engine.worker._verdicts cimport (
    OPERATION_WRITE, RESOURCE_TOPIC, RESOURCE_TRANSACTIONAL_ID)
from kbroker.net._request cimport answer_bytes, answer_reserve
from kbroker.net._types cimport ACTION_SEND, Request
from kbroker.protocol._cursor cimport (
    Cursor,
    RequestHeader,
    kb_put_u32,
    put_count,
    put_i16,
    put_i32,
    put_no_tags,
    put_string,
    skip_tags,
    take_count,
    take_header,
    take_i16,
    take_i32,
    take_i64,
    take_string,
)
from kbroker.protocol._versions cimport ADD_PARTITIONS_TO_TXN_FLEXIBLE_SINCE
from kbroker.replica._metadata_view cimport ViewTopic
from kbroker.replica._snapshot cimport Snapshot

cdef enum:
    VERSION_MAX = 3               # later ones are brokers'
    CLIENT_VERSION = 0            # of transactions, as the record has it
    TOPIC_BYTES_MIN = 1 + 1 + 1   # in a request: an empty name, no partition, the end of its tags
    HEAD_BYTES_MAX = 32
    TOPIC_BYTES_MAX = 16          # in an answer, but for the name
    PARTITION_BYTES = 4 + 2 + 1

    PLANNED = 0
    FOR_PYTHON = -1
    SET_ASIDE = -2


cdef struct AddPlan:
    AddPlan* next
    Request* request
    int32_t correlation_id
    int64_t producer_id
    int16_t producer_epoch
    Cursor topics                 # from their count on
    size_t names_bytes            # of all topics
    int32_t topic_count
    int32_t place_count           # of partitions, as the request names them
    Place* places
    MoveVerdict verdict
    TxnMove move


# --- plan ----------------------------------------------------------------------------------------

cdef int _take_topic(
    HotWorker* worker, AddPlan* plan, Cursor* cursor, int flexible
) noexcept nogil:
    # -1: for Python.
    cdef int64_t length = 0
    cdef uint8_t* name = take_string(cursor, flexible, &length)
    cdef int32_t count = take_count(cursor, flexible, 4)
    cdef const ViewTopic* topic
    cdef Place* place
    cdef int32_t _i
    if name == NULL or cursor.failed or plan.place_count + count > REQUEST_PARTITIONS_MAX:
        return -1
    topic = published_topic(worker, name, <int32_t>length)
    if topic == NULL or topic.internal or not client_may(
        worker.context, plan.request, OPERATION_WRITE, RESOURCE_TOPIC, name, <int32_t>length,
    ):
        return -1
    for _i in range(count):
        place = &plan.places[plan.place_count]
        place.topic = name
        place.topic_length = <int32_t>length
        place.index = take_i32(cursor)
        if place.index < 0 or place.index >= topic.partition_count:
            return -1
        plan.place_count += 1
    plan.names_bytes += <size_t>length
    skip_tags(cursor, flexible)
    return 0


cdef int _parse(HotWorker* worker, AddPlan* plan) noexcept nogil:
    # -1: for Python.
    cdef int flexible = plan.request.api_version >= ADD_PARTITIONS_TO_TXN_FLEXIBLE_SINCE
    cdef Cursor cursor
    cdef RequestHeader header
    cdef int64_t length = 0
    cdef int32_t _i
    take_header(&cursor, &header, plan.request.data, plan.request.length_bytes, flexible)
    plan.correlation_id = header.correlation_id
    plan.move.id = take_string(&cursor, flexible, &length)
    plan.move.id_length = <int32_t>length
    plan.producer_id = take_i64(&cursor)
    plan.producer_epoch = take_i16(&cursor)
    plan.topics = cursor
    plan.topic_count = take_count(&cursor, flexible, TOPIC_BYTES_MIN)
    if cursor.failed or plan.move.id == NULL or not client_may(
        worker.context, plan.request, OPERATION_WRITE, RESOURCE_TRANSACTIONAL_ID, plan.move.id,
        plan.move.id_length,
    ):
        return -1
    # A partition has four bytes at least in the frame.
    plan.places = <Place*>arena_take(
        &worker.arena, sizeof(Place) * <size_t>min(
            <int64_t>(cursor.left // 4) + 1, <int64_t>REQUEST_PARTITIONS_MAX + 1))
    if plan.places == NULL:
        return -1
    for _i in range(plan.topic_count):
        if _take_topic(worker, plan, &cursor, flexible) != 0:
            return -1
    skip_tags(&cursor, flexible)
    return -1 if cursor.failed else 0


cdef int _plan(
    HotWorker* worker, TransactionHooks* hooks, AddPlan* plan, int64_t now_ms
) noexcept nogil:
    if plan.request.api_version > VERSION_MAX or _parse(worker, plan) != 0:
        return FOR_PYTHON
    plan.move.shard = shard_for(hooks.shards, plan.move.id, plan.move.id_length)
    if plan.move.shard == NULL or shard_error(plan.move.shard) != 0:
        return FOR_PYTHON         # what is still in memory may be old, and a write there may hang
    if is_set_aside(worker, plan.request, plan.move.shard):
        return SET_ASIDE
    plan.verdict = move_add(
        hooks.ids, &plan.move, plan.producer_id, plan.producer_epoch, plan.places,
        places_sort(plan.places, plan.place_count), CLIENT_VERSION, now_ms)
    return FOR_PYTHON if plan.verdict == MOVE_FOR_PYTHON else PLANNED


# --- answer --------------------------------------------------------------------------------------

cdef uint8_t* _put_topic(uint8_t* at, Cursor* asked, int flexible) noexcept nogil:
    # As it was asked for, with a 0 after each partition.
    cdef int64_t length = 0
    cdef uint8_t* name = take_string(asked, flexible, &length)
    cdef int32_t count = take_count(asked, flexible, 4)
    cdef int32_t _i
    at = put_string(at, flexible, name, <int32_t>length)
    at = put_count(at, flexible, count)
    for _i in range(count):
        at = put_i32(at, take_i32(asked))
        at = put_i16(at, 0)
        at = put_no_tags(at, flexible)
    skip_tags(asked, flexible)
    return put_no_tags(at, flexible)


cdef void _answer(HotWorker* worker, AddPlan* plan) noexcept nogil:
    cdef int flexible = plan.request.api_version >= ADD_PARTITIONS_TO_TXN_FLEXIBLE_SINCE
    cdef size_t bound = HEAD_BYTES_MAX + plan.names_bytes + (
        TOPIC_BYTES_MAX * <size_t>plan.topic_count + PARTITION_BYTES * <size_t>plan.place_count)
    cdef uint8_t* head = answer_reserve(plan.request, <uint32_t>bound, 1)
    cdef uint8_t* at
    cdef int32_t _i
    if head == NULL:
        cold_push(worker, plan.request, REASON_TRANSACTION)  # once more, which changes nothing
        return
    at = put_i32(head + 4, plan.correlation_id)
    at = put_no_tags(at, flexible)
    at = put_i32(at, 0)           # throttle time
    take_count(&plan.topics, flexible, TOPIC_BYTES_MIN)
    at = put_count(at, flexible, plan.topic_count)
    for _i in range(plan.topic_count):
        at = _put_topic(at, &plan.topics, flexible)
    at = put_no_tags(at, flexible)
    kb_put_u32(head, <uint32_t>(at - head - 4))
    answer_bytes(plan.request, head, at - head)
    plan.request.action = ACTION_SEND
    kb_count(&worker.transaction_adds, 1)
    worker_answer_charged(worker, plan.request)


# --- the run -------------------------------------------------------------------------------------

cdef void _finish(
    HotWorker* worker, TransactionHooks* hooks, AddPlan* plan
) noexcept nogil:
    if plan.verdict == MOVE_TO_WRITE:
        if plan.move.fails:
            move_let_go(hooks.ids, &plan.move)
            cold_push(worker, plan.request, REASON_TRANSACTION)
            return
        if not move_apply(hooks.ids, &plan.move):
            cold_push(worker, plan.request, REASON_TRANSACTION)
            return
    _answer(worker, plan)


cdef void add_partitions_run(
    HotWorker* worker, Snapshot* snapshot, Request* first
) noexcept nogil:
    """Those of a run, in order; those for Python go to the worker's cold list."""
    cdef TransactionHooks* hooks = transactions_of(worker)
    cdef Request* request = first
    cdef Request* following
    cdef AddPlan* plans = NULL
    cdef AddPlan* last = NULL
    cdef AddPlan* plan
    cdef RunMoves moves
    cdef TxnTouched touched
    cdef int64_t now_ms = 0
    cdef int status
    if hooks != NULL and (moves_init(&moves, &worker.arena) != 0
                          or touched_init(worker, &touched, RUN_REQUESTS_MAX) != 0):
        hooks = NULL
    if hooks != NULL:
        now_ms = transactions_now_ms(hooks)
    while request != NULL:
        following = request.next
        request.next = NULL
        plan = NULL
        if hooks != NULL:
            plan = <AddPlan*>arena_take(&worker.arena, sizeof(AddPlan))
        status = FOR_PYTHON
        if plan != NULL:
            plan.request = request
            status = _plan(worker, hooks, plan, now_ms)
        if status == FOR_PYTHON:
            cold_push(worker, request, REASON_TRANSACTION)
        elif status == PLANNED:
            list_append(&plans, &last, plan, &plan.next, "adds: nothing is after the last")
            if plan.verdict == MOVE_TO_WRITE:
                moves_add(&moves, &plan.move)
        request = following
    if plans == NULL:
        return
    txn_write(worker, &moves, &touched, now_ms)
    while plans != NULL:
        _finish(worker, hooks, plans)
        plans = plans.next
    worker_hand_over(worker)
    touched_wake(worker, snapshot, &touched)
    worker_hand_over(worker)
