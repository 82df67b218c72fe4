# cython: language_level=3
"""The figures of the hot path, read by any thread: sums over all workers, and each handler's.

Every worker writes its own without a lock; the timer's and the cold produces' workers count in the
sums too, so that these only ever grow, whatever becomes of topics.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_load_i64, kb_load_int, kb_load_ptr
from kbroker.core._figures cimport kb_count, kb_figure
from kbroker.core._limits cimport PROCESSORS_MAX
from kbroker.core._lock_order cimport RANK_QUEUE, RANK_TABLE, lock_ranked, unlock_ranked
from kbroker.engine.worker._context cimport (
    ERROR_CODES, GIL_WAIT_BUCKETS, HotContext, HotWorker)


cdef int _add(HotWorker* worker, dict totals, dict produce_codes, dict fetch_codes) except -1:
    cdef int place
    totals["produce_requests"] += kb_figure(&worker.produce_requests)
    totals["produce_partitions"] += kb_figure(&worker.produce_partitions)
    totals["produce_batches"] += kb_figure(&worker.produce_batches)
    totals["produce_records"] += kb_figure(&worker.produce_records)
    totals["produce_bytes"] += kb_figure(&worker.produce_bytes)
    totals["produce_errors"] += kb_figure(&worker.produce_errors)
    totals["rejected_bytes"] += kb_figure(&worker.rejected_bytes)
    totals["fetch_requests"] += kb_figure(&worker.fetch_requests)
    totals["fetch_partitions"] += kb_figure(&worker.fetch_partitions)
    totals["fetch_bytes"] += kb_figure(&worker.fetch_bytes)
    totals["replicated_bytes"] += kb_figure(&worker.replicated_bytes)
    totals["fetch_errors"] += kb_figure(&worker.fetch_errors)
    totals["metadata_requests"] += kb_figure(&worker.metadata_requests)
    totals["metadata_bytes"] += kb_figure(&worker.metadata_bytes)
    totals["heartbeat_requests"] += kb_figure(&worker.heartbeat_requests)
    totals["consumer_heartbeat_requests"] += kb_figure(&worker.consumer_heartbeat_requests)
    totals["commit_requests"] += kb_figure(&worker.commit_requests)
    totals["commit_offsets"] += kb_figure(&worker.commit_offsets)
    totals["transaction_adds"] += kb_figure(&worker.transaction_adds)
    totals["transaction_ends"] += kb_figure(&worker.transaction_ends)
    totals["transaction_joins"] += kb_figure(&worker.transaction_joins)
    totals["parked_fetches"] += kb_figure(&worker.parked_fetches)
    totals["parked_produces"] += kb_figure(&worker.parked_produces)
    for place in range(ERROR_CODES):
        if kb_figure(&worker.produce_codes[place]) > 0:
            produce_codes[place - 1] = (
                produce_codes.get(place - 1, 0) + kb_figure(&worker.produce_codes[place]))
        if kb_figure(&worker.fetch_codes[place]) > 0:
            fetch_codes[place - 1] = (
                fetch_codes.get(place - 1, 0) + kb_figure(&worker.fetch_codes[place]))
    return 0


cdef dict _handler(HotWorker* worker):
    return {
        "name": f"kafka-request-handler-{worker.handler.index}",
        "serving": not kb_load_int(&worker.leaving),
        "idle_ns": kb_figure(&worker.handler.idle_ns),
        "runs": kb_figure(&worker.handler.runs),
        "run_requests": kb_figure(&worker.handler.run_requests),
        "cold_requests": kb_figure(&worker.handler.cold_requests),
        "gil_waits_us": [kb_figure(&worker.gil_waits[at]) for at in range(GIL_WAIT_BUCKETS)],
        "gil_wait_ns": kb_figure(&worker.gil_wait_ns),
    }


cdef dict hot_statistics(
    HotContext* context, HotWorker** workers, int count, HotWorker* own, HotWorker* cold,
):
    """Figures of the hot path as a dict; counters since the start."""
    cdef long long parked, parked_produces, expired, expired_produces, left, evictions
    cdef int sessions, at
    cdef HotWorker* at_once
    cdef dict produce_codes = {}
    cdef dict fetch_codes = {}
    cdef dict totals = dict.fromkeys((
        "produce_requests", "produce_partitions", "produce_batches", "produce_records",
        "produce_bytes", "produce_errors", "rejected_bytes", "fetch_requests",
        "fetch_partitions", "fetch_bytes", "replicated_bytes", "fetch_errors", "parked_fetches",
        "parked_produces", "metadata_requests", "metadata_bytes", "heartbeat_requests",
        "consumer_heartbeat_requests", "commit_requests", "commit_offsets", "transaction_adds",
        "transaction_ends", "transaction_joins"), 0)
    for at in range(count):
        _add(workers[at], totals, produce_codes, fetch_codes)
    for at in range(PROCESSORS_MAX):
        at_once = <HotWorker*>kb_load_ptr(<void**>&context.at_once[at])
        if at_once != NULL:
            _add(at_once, totals, produce_codes, fetch_codes)
    _add(own, totals, produce_codes, fetch_codes)
    _add(cold, totals, produce_codes, fetch_codes)
    with nogil:
        lock_ranked(&context.parked.lock, RANK_QUEUE)
        parked = context.parked.count
        parked_produces = context.parked.produce_count
        expired = context.parked.expired_total
        expired_produces = context.parked.expired_produces
        left = context.parked.left_total
        unlock_ranked(&context.parked.lock, RANK_QUEUE)
        lock_ranked(&context.sessions.lock, RANK_TABLE)
        sessions = context.sessions.by_id.count
        evictions = context.sessions.evictions
        unlock_ranked(&context.sessions.lock, RANK_TABLE)
    totals["produce_codes"] = produce_codes
    totals["fetch_codes"] = fetch_codes
    totals["parked_now"] = parked
    totals["parked_produces_now"] = parked_produces
    totals["parked_expired"] = expired
    totals["parked_produces_expired"] = expired_produces
    totals["parked_left"] = left
    totals["parked_bytes"] = kb_load_i64(&context.parked.bytes)
    totals["fetch_sessions"] = sessions
    totals["fetch_session_partitions"] = kb_load_i64(&context.sessions.partitions)
    totals["fetch_session_bytes"] = kb_load_i64(&context.sessions.bytes)
    totals["fetch_session_evictions"] = evictions
    totals["handlers"] = [_handler(workers[at]) for at in range(count)]
    return totals


cdef void note_gil_wait(HotWorker* worker, int64_t waited_ns) noexcept:
    # Powers of two of microseconds; how long a request for Python waited for the GIL.
    cdef int64_t waited_us = waited_ns // 1000
    cdef int bucket = 0
    while waited_us > 0 and bucket < GIL_WAIT_BUCKETS - 1:
        waited_us >>= 1
        bucket += 1
    kb_count(&worker.gil_waits[bucket], 1)
    kb_count(&worker.gil_wait_ns, waited_ns)
