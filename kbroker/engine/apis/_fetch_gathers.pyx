# cython: language_level=3
"""A follower's fetch that waits a moment for more than there is (docs/adr/0036).

Whether it does and for how much is decided here, with each new fetch of a follower in sync;
`fetch_wait` parks it, and the handler that did is its clock (_long_polls). What a session knows of
the waits before is under its lock, as long as the fetch is served.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_load_int
from kbroker.replica._fetch_session cimport FetchSession
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport FetchPlan, FetchTarget
from kbroker.engine.waiting._parked cimport is_awaited, parked_drop
from kbroker.engine.waiting._parked_state cimport OPEN
from kbroker.engine.worker._worker_mode cimport MAY_GATHER

cdef enum:
    GATHER_BYTES_MAX = 128 << 10  # beyond it each round trip brings enough
    LITTLE = 8                    # less than such a part of the last answer's bytes
    GATHER_PAUSE_MAX = 64         # fetches of a follower between two trials that were of no use


cdef int _others_wait(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # Whether a request waits for records that this fetch acknowledges, or for those it would bring.
    cdef FetchTarget* target
    cdef int i
    if worker.advanced != NULL:
        return 1
    for i in range(plan.count):
        target = &plan.targets[i]
        if target.partition != NULL and is_awaited(target.partition, target.high_watermark):
            return 1
    return 0


cdef int fetch_gathers(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    """Whether a follower's fetch, which was noted, waits a moment for more than there is.

    If a request waits, the fetch waits for as many bytes as its last answer brought, beside those
    that have come meanwhile. Acknowledged producers send as much again, one request after the
    other; answering after the first of these would cost the others a round trip. If no request
    waits, the fetch waits until one does: fewer rounds.
    """
    cdef int64_t last_bytes
    cdef int finds_little
    if (worker.handler.index < 0 or not worker.may & MAY_GATHER
            or plan.session == NULL or plan.any_error or plan.max_wait_ms <= 0
            or plan.out_of_sync or plan.count == plan.not_there_count):
        return 0
    if worker.gathering != NULL and kb_load_int(&worker.gathering.state) != OPEN:
        parked_drop(worker.gathering)  # it was answered before its moment was over
        worker.gathering = NULL
    if worker.gathering != NULL:
        return 0
    last_bytes = plan.session.answered_bytes
    if not _others_wait(worker, plan):
        plan.lingers = plan.read_bytes < GATHER_BYTES_MAX
        plan.gathers_ns = worker.context.linger_ns
        plan.gathers_bytes = min(<int64_t>GATHER_BYTES_MAX, <int64_t>plan.max_bytes)
        return plan.lingers
    if last_bytes == 0 or last_bytes > GATHER_BYTES_MAX or plan.read_bytes > GATHER_BYTES_MAX:
        return 0                  # there is nothing to go by, or it is much as it is
    finds_little = plan.read_bytes < last_bytes // LITTLE
    _judge(plan.session, finds_little)
    if not finds_little and not _tries(plan.session):
        return 0
    plan.gathers_ns = worker.context.gather_ns
    plan.gathers_bytes = min(plan.read_bytes + last_bytes, <int64_t>plan.max_bytes)
    return 1


cdef void _judge(FetchSession* session, int finds_little) noexcept nogil:
    # Where records come as the answers to answers, the fetch after a trial finds little. Where they
    # come by themselves, it finds its share of a round trip's, however much the trial brought.
    if not session.gather_tried:
        return
    session.gather_pause = (
        0 if finds_little else min(max(1, 2 * session.gather_pause), GATHER_PAUSE_MAX))
    session.gather_paused = session.gather_tried = 0


cdef int _tries(FetchSession* session) noexcept nogil:
    # There is something already. Either records come by themselves, and waiting for more brings
    # nothing but the wait; or producers answer to answers in two turns, of which each has what came
    # while the other was under way, and one wait makes one turn of them. Only a wait tells: while
    # they are of use each is tried, else ever fewer.
    if session.gather_paused < session.gather_pause:
        session.gather_paused += 1
        return 0
    session.gather_tried = 1
    return 1
