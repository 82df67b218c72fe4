# cython: language_level=3
"""EndTxn for a run, without the GIL: outcomes, their markers, and that they are complete.

    plan      parse, claim the id (`coordinator/txn/_moves`), look its partitions up; no effect
    outcome   Prepare* of all requests: one write for each partition of __transaction_state
    markers   of all outcomes: one write for each partition (`_txn_markers`)
    complete  Complete* of all outcomes that have their markers: as the outcomes
    answer    every request that has its outcome in the log

Each step begins when the one before is over for all, so an outcome is in the log before its first
marker, and its last marker before Complete*. Meanwhile the id is pending.

Python (handlers/end_txn.py) says what the API means and is the authority; the answers here are its
bytes. It gets, whole and in its place in the connection's order, whatever is not plainly right: a
transaction that is not open, an id that is unknown, of another producer or with a write under way,
one that has to begin a new producer id, offsets of a group, partitions that another broker leads or
that have followers, a log that refuses. Up to that moment nothing has been written. Where a marker
or Complete* fails after that, the outcome is Python's from then on: the request goes to Python, too
(`TransactionCoordinator.end` goes on with it), and its client has to come again.

Protocol: EndTxnRequest 0-5 (flexible from 3; from 5 on each outcome raises the epoch, and the
response has the pair). Threads: the worker's own. Locks: that of the ids, a shard's, a partition's.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.runtime._shards cimport shard_error, shard_for
from kbroker.coordinator.txn._moves cimport (
    MOVE_TO_WRITE, TxnMove, move_apply, move_complete, move_end, move_leave, move_let_go)
from kbroker.coordinator.txn._writes cimport RunMoves, moves_add, moves_init
from kbroker.core._arena cimport arena_take
from kbroker.core._figures cimport kb_count
from kbroker.core._limits cimport RUN_REQUESTS_MAX
from kbroker.core._list cimport list_append
from kbroker.engine.apis._txn_markers cimport TxnMarkers, markers_plan, markers_write
from kbroker.engine.apis._txn_write cimport (
    TxnTouched, is_set_aside, touched_init, touched_wake, transactions_now_ms, transactions_of,
    txn_write)
from kbroker.engine.worker._answers cimport cold_push, worker_hand_over
from kbroker.engine.worker._asked_rights cimport client_may
from kbroker.engine.worker._charges cimport worker_answer_charged
from kbroker.engine.worker._context cimport REASON_TRANSACTION, HotWorker, TransactionHooks
from kbroker.engine.worker._verdicts cimport OPERATION_WRITE, RESOURCE_TRANSACTIONAL_ID
from kbroker.engine.worker._worker_mode cimport MAY_WAIT_FOR_DISK
from kbroker.log.engine._storage cimport WRITE_HANGS, log_late_from_ns
from kbroker.net._request cimport answer_bytes, answer_reserve
from kbroker.net._request_channel cimport request_channel_set_aside
from kbroker.net._types cimport ACTION_SEND, Request
from kbroker.protocol._cursor cimport (
    Cursor,
    RequestHeader,
    kb_put_u32,
    put_i16,
    put_i32,
    put_i64,
    put_no_tags,
    skip_tags,
    take_header,
    take_i8,
    take_i16,
    take_i64,
    take_string,
)
from kbroker.protocol._versions cimport END_TXN_FLEXIBLE_SINCE
from kbroker.replica._snapshot cimport Snapshot

cdef enum:
    RAISES_SINCE = 5
    RAISING_VERSION = 2           # of transactions, as the record has it
    ANSWER_BYTES = 4 + 4 + 1 + 4 + 2 + 8 + 2 + 1

    PLANNED = 0
    FOR_PYTHON = -1
    SET_ASIDE = -2


cdef struct EndPlan:
    EndPlan* next
    Request* request
    int32_t correlation_id
    int64_t producer_id
    int16_t producer_epoch
    int8_t committed
    int8_t is_ended               # its outcome is in the log
    int64_t next_producer_id      # the pair that the client goes on with
    int16_t next_epoch
    TxnMove move
    TxnMarkers markers


# The requests of a run that are served here.
cdef struct EndRun:
    TransactionHooks* hooks
    EndPlan* plans
    EndPlan* last
    TxnTouched touched
    int64_t now_ms


# --- plan ----------------------------------------------------------------------------------------

cdef int _parse(EndPlan* plan) noexcept nogil:
    # -1: for Python.
    cdef int flexible = plan.request.api_version >= END_TXN_FLEXIBLE_SINCE
    cdef Cursor cursor
    cdef RequestHeader header
    cdef int64_t length = 0
    take_header(&cursor, &header, plan.request.data, plan.request.length_bytes, flexible)
    plan.correlation_id = header.correlation_id
    plan.move.id = take_string(&cursor, flexible, &length)
    plan.move.id_length = <int32_t>length
    plan.producer_id = take_i64(&cursor)
    plan.producer_epoch = take_i16(&cursor)
    plan.committed = take_i8(&cursor) != 0
    skip_tags(&cursor, flexible)
    return -1 if cursor.failed or plan.move.id == NULL else 0


cdef int _claim(
    HotWorker* worker, Snapshot* snapshot, EndRun* run, EndPlan* plan
) noexcept nogil:
    # The id, and the partitions of its transaction as they are then.
    cdef int16_t version = RAISING_VERSION if plan.request.api_version >= RAISES_SINCE else 0
    if move_end(
        run.hooks.ids, &plan.move, plan.producer_id, plan.producer_epoch, plan.committed, version,
        run.hooks.epoch_max, run.now_ms, &worker.arena,
    ) != MOVE_TO_WRITE:
        return FOR_PYTHON
    if markers_plan(worker, snapshot, &plan.markers) != 0:
        move_let_go(run.hooks.ids, &plan.move)
        return FOR_PYTHON
    return PLANNED


cdef int _plan(
    HotWorker* worker, Snapshot* snapshot, EndRun* run, EndPlan* plan
) noexcept nogil:
    cdef TxnMarkers* markers = &plan.markers
    if _parse(plan) != 0 or not client_may(
        worker.context, plan.request, OPERATION_WRITE, RESOURCE_TRANSACTIONAL_ID, plan.move.id,
        plan.move.id_length,
    ):
        return FOR_PYTHON
    plan.move.shard = shard_for(run.hooks.shards, plan.move.id, plan.move.id_length)
    if plan.move.shard == NULL or shard_error(plan.move.shard) != 0:
        return FOR_PYTHON         # a write there may hang, and Python answers at once
    if is_set_aside(worker, plan.request, plan.move.shard):
        return SET_ASIDE
    markers.move = &plan.move
    if _claim(worker, snapshot, run, plan) != PLANNED:
        return FOR_PYTHON
    if markers.slow == NULL or worker.may & MAY_WAIT_FOR_DISK:
        return PLANNED
    # Another handler waits for the slow log of a partition. It has the request at once, so the
    # claim ends before.
    move_let_go(run.hooks.ids, &plan.move)
    if request_channel_set_aside(
        worker.context.request_channel, plan.request, markers.slow,
        log_late_from_ns(markers.slow), markers.slow_hangs == WRITE_HANGS,
    ):
        return SET_ASIDE
    return _claim(worker, snapshot, run, plan)


cdef int _plan_all(
    HotWorker* worker, Snapshot* snapshot, EndRun* run, Request* first, RunMoves* moves
) noexcept nogil:
    # How many of a run are served here; those for Python go to the worker's cold list.
    cdef Request* request = first
    cdef Request* following
    cdef EndPlan* plan
    cdef int status
    cdef int count = 0
    while request != NULL:
        following = request.next
        request.next = NULL
        plan = NULL
        if run.hooks != NULL:
            plan = <EndPlan*>arena_take(&worker.arena, sizeof(EndPlan))
        status = FOR_PYTHON
        if plan != NULL:
            plan.request = request
            status = _plan(worker, snapshot, run, plan)
        if status == FOR_PYTHON:
            cold_push(worker, request, REASON_TRANSACTION)
        elif status == PLANNED:
            list_append(&run.plans, &run.last, plan, &plan.next, "ends: nothing is after the last")
            moves_add(moves, &plan.move)
            count += 1
        request = following
    return count


# --- outcome, markers, complete ------------------------------------------------------------------

cdef TxnMarkers* _apply_outcomes(EndRun* run) noexcept nogil:
    # The markers that are to be written.
    cdef EndPlan* plan = run.plans
    cdef TxnMarkers* first = NULL
    cdef TxnMarkers** place = &first
    while plan != NULL:
        if plan.move.fails:
            move_let_go(run.hooks.ids, &plan.move)
        elif move_apply(run.hooks.ids, &plan.move):
            plan.is_ended = 1
            plan.next_producer_id = plan.move.after.producer_id
            plan.next_epoch = plan.move.after.epoch
            place[0] = &plan.markers
            place = &plan.markers.next
        plan = plan.next
    return first


cdef int _gather_complete(EndRun* run, RunMoves* moves) noexcept nogil:
    cdef EndPlan* plan = run.plans
    cdef int count = 0
    while plan != NULL:
        if plan.is_ended and not plan.markers.fails:
            move_complete(&plan.move, run.now_ms)
            plan.move.next = NULL
            moves_add(moves, &plan.move)
            count += 1
        plan = plan.next
    return count


cdef void _end_all(HotWorker* worker, EndRun* run, RunMoves* moves) noexcept nogil:
    # The steps of a run, one after the other.
    cdef RunMoves completes
    cdef TxnMarkers* markers
    cdef EndPlan* plan
    txn_write(worker, moves, &run.touched, run.now_ms)
    markers = _apply_outcomes(run)
    if markers == NULL:
        return
    markers_write(worker, markers, &run.touched, run.now_ms)
    if moves_init(&completes, &worker.arena) == 0 and _gather_complete(run, &completes) > 0:
        txn_write(worker, &completes, &run.touched, run.now_ms)
    else:
        completes.count = 0
    plan = run.plans
    while plan != NULL:
        if plan.is_ended:
            if completes.count == 0 or plan.markers.fails or plan.move.fails:
                move_leave(run.hooks.ids, &plan.move)
                plan.is_ended = 0
            else:
                move_apply(run.hooks.ids, &plan.move)
        plan = plan.next


# --- answer --------------------------------------------------------------------------------------

cdef void _answer(HotWorker* worker, EndPlan* plan) noexcept nogil:
    # Fits into the request's own bytes, so there is always room.
    cdef int version = plan.request.api_version
    cdef int flexible = version >= END_TXN_FLEXIBLE_SINCE
    cdef uint8_t* head = answer_reserve(plan.request, ANSWER_BYTES, 1)
    cdef uint8_t* at = put_i32(head + 4, plan.correlation_id)
    at = put_no_tags(at, flexible)
    at = put_i32(at, 0)           # throttle time
    at = put_i16(at, 0)
    if version >= RAISES_SINCE:
        at = put_i64(at, plan.next_producer_id)
        at = put_i16(at, plan.next_epoch)
    at = put_no_tags(at, flexible)
    kb_put_u32(head, <uint32_t>(at - head - 4))
    answer_bytes(plan.request, head, at - head)
    plan.request.action = ACTION_SEND
    kb_count(&worker.transaction_ends, 1)
    worker_answer_charged(worker, plan.request)


# --- the run -------------------------------------------------------------------------------------

cdef void end_txn_run(HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil:
    """Those of a run, in order; those for Python go to the worker's cold list."""
    cdef EndRun run
    cdef RunMoves moves
    cdef EndPlan* plan
    cdef int64_t touched_max = 2 * RUN_REQUESTS_MAX
    run.hooks = transactions_of(worker)
    run.plans = run.last = NULL
    run.now_ms = 0
    if run.hooks != NULL:
        run.now_ms = transactions_now_ms(run.hooks)
        if moves_init(&moves, &worker.arena) != 0:
            run.hooks = NULL
    if _plan_all(worker, snapshot, &run, first, &moves) == 0:
        return
    plan = run.plans
    while plan != NULL:
        touched_max += plan.markers.count
        plan = plan.next
    if touched_init(worker, &run.touched, <int>touched_max) != 0:
        plan = run.plans
        while plan != NULL:
            move_let_go(run.hooks.ids, &plan.move)
            cold_push(worker, plan.request, REASON_TRANSACTION)
            plan = plan.next
        return
    _end_all(worker, &run, &moves)
    plan = run.plans
    while plan != NULL:
        if plan.is_ended:
            _answer(worker, plan)
        else:
            cold_push(worker, plan.request, REASON_TRANSACTION)
        plan = plan.next
    worker_hand_over(worker)
    touched_wake(worker, snapshot, &run.touched)
    worker_hand_over(worker)
