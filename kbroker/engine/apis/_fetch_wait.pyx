# cython: language_level=3
"""A fetch that found too little waits (`_parked`): one watch for each partition that it names.

Its request is detached from the bytes that came in, since it is read again when it is due. A fetch
that gathers (`_fetch_gathers`) is its handler's as well, which is its clock. Threads: the worker's
own; no lock is held but the session's.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t

from kbroker.core._atomics cimport kb_add_int
from kbroker.core._figures cimport kb_count
from kbroker.core._sync cimport kb_now_ns
from kbroker.net._request cimport request_detach
from kbroker.replica._partition cimport partition_acquire
from kbroker.engine.worker._context cimport HotWorker, ParkedRequest, ParkedWatch, WaiterKind
from kbroker.engine.apis._fetch_plan cimport NEWS_WAIT_MS, FetchPlan, FetchTarget
from kbroker.engine.waiting._parked cimport (
    parked_abandon, parked_drop, parked_new, parked_wait, parked_widen)

cdef enum:
    FOLLOWER_WAIT_MS = 256        # from here on
    FOLLOWER_TICKS = 16           # deadlines of followers' fetches are so far apart
    NEWS_TICKS = 4                # and where a new high watermark is to be sent to them
    # A fetch whose partitions do not exist is on no list, and nothing wakes it when a topic is
    # created: it looks again after so long, even if its client would wait longer.
    NOTHING_THERE_WAIT_MS = 1000
    # A longer frame is answered at once: the client, and 512 for each partition with its topic.
    FRAME_BYTES = 262144
    FRAME_BYTES_EACH = 512


cdef void _watch_targets(ParkedRequest* parked, FetchPlan* plan) noexcept nogil:
    cdef ParkedWatch* watch = parked.watches
    cdef FetchTarget* target
    cdef int i
    for i in range(plan.count):
        target = &plan.targets[i]
        if target.not_there:
            continue
        watch.partition = target.partition
        watch.fetch_offset = target.fetch_offset
        watch.high_watermark = INT64_MAX if plan.has_news else target.high_watermark
        watch.log_start = target.log_start
        watch.held_back = target.held_back
        watch.max_bytes = <int>target.max_bytes
        watch.leader_epoch = target.leader_epoch if plan.replica_id < 0 else -1
        partition_acquire(target.partition)
        watch += 1


cdef int fetch_wait(
    HotWorker* worker, const WaiterKind* kind, FetchPlan* plan
) noexcept nogil:
    cdef int32_t wait_ms = plan.max_wait_ms
    cdef ParkedRequest* parked
    # A frame that is longer than its partitions need would take the room of other clients.
    if plan.request.length_bytes > FRAME_BYTES + FRAME_BYTES_EACH * <int64_t>plan.count:
        return 0
    if plan.has_news:
        wait_ms = min(wait_ms, <int32_t>NEWS_WAIT_MS)
    elif plan.count == plan.not_there_count:
        wait_ms = min(wait_ms, <int32_t>NOTHING_THERE_WAIT_MS)
    parked = parked_new(
        worker, kind, plan.request, plan.count - plan.not_there_count, plan.request.length_bytes,
        wait_ms, plan.replica_id < 0 or plan.is_stranger)
    if parked == NULL:
        return 0
    if request_detach(plan.request) != 0:
        parked_abandon(parked)
        return 0
    parked.wanted_least = <uint64_t>max(plan.min_bytes, 0)
    parked.wanted = max(parked.wanted_least, <uint64_t>plan.gathers_bytes)
    parked.lingers = plan.lingers
    parked.isolation = plan.isolation
    parked.read_from = plan.read_from
    # The exact moment does not matter, and each tick is work for Python.
    if plan.replica_id >= 0 and plan.max_wait_ms >= FOLLOWER_WAIT_MS:
        parked_widen(parked, NEWS_TICKS if plan.has_news else FOLLOWER_TICKS)
    _watch_targets(parked, plan)
    if plan.gathers_ns:
        kb_add_int(&parked.refs, 1)
        worker.gathering = parked
        worker.gathers_until_ns = kb_now_ns() + plan.gathers_ns
    if parked_wait(worker, parked):
        kb_count(&worker.parked_fetches, 1)
        return 1
    if worker.gathering == parked:
        worker.gathering = NULL
        parked_drop(parked)
    parked_drop(parked)
    return 0
