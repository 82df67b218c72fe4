# cython: language_level=3
"""One run: requests of the hot APIs that a handler has taken, served and answered.

    Produce, Fetch, heartbeats -> answers to their Processors in one push each -> OffsetCommit,
    AddPartitionsToTxn, EndTxn -> what has to be on the disk first -> Metadata
    -> produces with much to unpack in small batches, some at a time -> those with large batches,
    one by one

The first of this order wait for no other request, and no other request waits for the last ones.
Requests that need Python are left in the worker's lists. The handler's thread, no GIL.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset

from kbroker.core._arena cimport Arena, arena_free, arena_reset
from kbroker.core._atomics cimport kb_load_ptr
from kbroker.core._sync cimport kb_now_ns
from kbroker.net._types cimport READ_AHEAD, Request, RequestList
from kbroker.protocol._versions cimport (
    API_ADD_PARTITIONS_TO_TXN, API_CONSUMER_GROUP_HEARTBEAT, API_END_TXN, API_FETCH, API_HEARTBEAT,
    API_METADATA, API_PRODUCE)
from kbroker.replica._snapshot cimport Snapshot, snapshot_enter, snapshot_leave
from kbroker.engine.worker._answers cimport cold_push, worker_give_up_role, worker_hand_over
from kbroker.engine.worker._charges cimport charges_begin
from kbroker.engine.worker._context cimport REASON_TRANSACTION, HotWorker, TransactionHooks
from kbroker.engine.apis._consumer_heartbeat cimport consumer_heartbeat_run
from kbroker.engine.apis._fetch cimport fetch_run
from kbroker.engine.apis._heartbeat cimport heartbeat_run
from kbroker.engine.apis._metadata cimport metadata_run
from kbroker.engine.waiting._long_polls cimport long_polls_let_go, long_polls_wake_advanced
from kbroker.engine.apis._offset_commit cimport offset_commit_run
from kbroker.engine.apis._produce cimport produce_flush, produce_run
from kbroker.engine.apis._read_ahead cimport read_ahead_run
from kbroker.engine.worker._worker_mode cimport MODE_UNPACKING, worker_add_mode, worker_set_mode

cdef enum:
    LONG_RUN_BYTES = 1 << 20      # worth waking another handler for new requests
    TOGETHER_BYTES = 256 << 10    # of small batches with much to unpack: one append, one hand-over


# A run by API.
cdef struct Shares:
    Request* produces
    Request* fetches
    Request* metadata
    Request* heartbeats
    Request* consumer_heartbeats
    Request* commits
    Request* adds
    Request* ends
    Request* reads_ahead


cdef int64_t _split(Request* run, Shares* shares) noexcept nogil:
    # A run by API, in order, and its bytes. Within a connection there is nothing to keep apart: one
    # request each.
    cdef Request** produces = &shares.produces
    cdef Request** fetches = &shares.fetches
    cdef Request** metadata = &shares.metadata
    cdef Request** heartbeats = &shares.heartbeats
    cdef Request** consumer_heartbeats = &shares.consumer_heartbeats
    cdef Request** commits = &shares.commits
    cdef Request** adds = &shares.adds
    cdef Request** ends = &shares.ends
    cdef Request** reads_ahead = &shares.reads_ahead
    cdef Request* following
    cdef int64_t run_bytes = 0
    memset(shares, 0, sizeof(Shares))
    while run != NULL:
        following = run.next
        run.next = NULL
        run_bytes += run.total_bytes
        if run.api_key == API_PRODUCE:
            produces[0] = run
            produces = &run.next
        elif run.api_key == API_FETCH:
            fetches[0] = run
            fetches = &run.next
        elif run.api_key == API_METADATA:
            metadata[0] = run
            metadata = &run.next
        elif run.api_key == API_HEARTBEAT:
            heartbeats[0] = run
            heartbeats = &run.next
        elif run.api_key == API_CONSUMER_GROUP_HEARTBEAT:
            consumer_heartbeats[0] = run
            consumer_heartbeats = &run.next
        elif run.api_key == API_ADD_PARTITIONS_TO_TXN:
            adds[0] = run
            adds = &run.next
        elif run.api_key == API_END_TXN:
            ends[0] = run
            ends = &run.next
        elif run.kind == READ_AHEAD:
            reads_ahead[0] = run
            reads_ahead = &run.next
        else:
            commits[0] = run
            commits = &run.next
        run = following
    return run_bytes


cdef void serve_run(HotWorker* worker, Request* run) noexcept nogil:
    _do_share(worker, run)
    if worker.put_off.head != NULL or worker.put_off_alone.head != NULL:
        worker.unpacks_since_ns = kb_now_ns()
    while worker.put_off.head != NULL:
        long_polls_let_go(worker, NULL)
        _unpack(worker, _taken(&worker.put_off, TOGETHER_BYTES))
    while worker.put_off_alone.head != NULL:  # the one before may have been a bomb
        worker_give_up_role(worker)
        long_polls_let_go(worker, NULL)
        _unpack(worker, _taken(&worker.put_off_alone, 0))


cdef Request* _taken(RequestList* requests, int64_t bytes_max) noexcept nogil:
    # The first, and those after it that are no more than so many bytes with it.
    cdef Request* first = requests.head
    cdef Request* last = first
    cdef int64_t taken_bytes = first.total_bytes
    while last.next != NULL and taken_bytes + last.next.total_bytes <= bytes_max:
        last = last.next
        taken_bytes += last.total_bytes
    requests.head = last.next
    if last.next == NULL:
        requests.tail = NULL
    last.next = NULL
    return first


cdef void _unpack(HotWorker* worker, Request* requests) noexcept nogil:
    cdef int mode = worker_add_mode(worker, MODE_UNPACKING)
    _do_share(worker, requests)
    worker_set_mode(worker, mode)


cdef void _do_share(HotWorker* worker, Request* run) noexcept nogil:
    cdef Shares shares
    cdef Snapshot* snapshot
    charges_begin(worker, run)
    if _split(run, &shares) >= LONG_RUN_BYTES:
        worker_give_up_role(worker)
    if shares.reads_ahead != NULL:
        read_ahead_run(worker, shares.reads_ahead)
    snapshot = snapshot_enter(worker.context.registry, worker.reader)
    if shares.produces != NULL:
        produce_run(worker, snapshot, shares.produces)
    if shares.fetches != NULL:
        fetch_run(worker, snapshot, shares.fetches)
        if worker.advanced != NULL:
            long_polls_wake_advanced(worker, snapshot)
    if shares.heartbeats != NULL:
        heartbeat_run(worker, shares.heartbeats)
    if shares.consumer_heartbeats != NULL:
        consumer_heartbeat_run(worker, shares.consumer_heartbeats)
    worker_hand_over(worker)
    if shares.commits != NULL:
        offset_commit_run(worker, snapshot, shares.commits)
    if shares.adds != NULL or shares.ends != NULL:
        _transactions(worker, snapshot, &shares)
    snapshot_leave(worker.reader)
    if worker.flushes != NULL:
        _wait_for_disk(worker, shares.metadata)
        charges_begin(worker, NULL)
        return
    arena_reset(&worker.arena)
    if shares.metadata != NULL:
        metadata_run(worker, shares.metadata)
    charges_begin(worker, NULL)


cdef void _transactions(HotWorker* worker, Snapshot* snapshot, Shares* shares) noexcept nogil:
    cdef TransactionHooks* hooks = <TransactionHooks*>kb_load_ptr(
        <void**>&worker.context.transactions)
    if hooks == NULL:
        _leave_to_python(worker, shares.adds)
        _leave_to_python(worker, shares.ends)
        return
    if shares.adds != NULL:
        hooks.add_partitions_run(worker, snapshot, shares.adds)
    if shares.ends != NULL:
        hooks.end_txn_run(worker, snapshot, shares.ends)


cdef void _leave_to_python(HotWorker* worker, Request* first) noexcept nogil:
    cdef Request* request = first
    cdef Request* following
    while request != NULL:
        following = request.next
        request.next = NULL
        cold_push(worker, request, REASON_TRANSACTION)
        request = following


cdef void _wait_for_disk(HotWorker* worker, Request* metadata) noexcept nogil:
    # The last of a run: no other request of it waits. The arena holds what the flush will answer.
    cdef Arena held = worker.arena
    if metadata != NULL:
        worker.arena.block = NULL
        metadata_run(worker, metadata)
        arena_free(&worker.arena)
        worker.arena = held
    long_polls_let_go(worker, NULL)
    produce_flush(worker)
    arena_reset(&worker.arena)
