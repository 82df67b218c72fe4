# cython: language_level=3
"""What the hot path charges to the quotas of clients: bytes, and the time of this thread.

Without a quota in force a request pays one load and one branch, at its answer; nothing here runs.

A run serves many requests at once, and the clock is read for none of them alone. The time since it
began, or since the last answer, is shared: a request is charged by its bytes and by a part that
each costs, as one of all that are still to be answered. What waits is charged what its last step
takes. The worker's own thread.
"""

from libc.stdint cimport int64_t

from kbroker.core._sync cimport kb_now_ns
from kbroker.net._charges cimport (
    request_charge, request_charge_answer, request_fetch_most)
from kbroker.net._types cimport Request
from kbroker.engine.worker._context cimport HotWorker
from kbroker.quota._quota_table cimport (
    FETCH_IN_FORCE, NO_QUOTA, PRODUCE_IN_FORCE, QUOTA_FETCH, QUOTA_PRODUCE, REQUEST_IN_FORCE)

cdef enum:
    EACH_BYTES = 1024             # what a request costs beside its bytes
    SIZE_FIELD_BYTES = 4


cdef void charges_share(HotWorker* worker, Request* run) noexcept nogil:
    cdef Request* request = run
    if not quotas_in_force(worker) & REQUEST_IN_FORCE:
        return
    while request != NULL:
        worker.uncharged += _weight(request)
        request = request.next
    worker.charged_ns = kb_now_ns()


cdef inline int64_t _weight(const Request* request) noexcept nogil:
    return <int64_t>request.total_bytes + EACH_BYTES * request.frames


cdef inline int64_t _share_ns(
    HotWorker* worker, const Request* request, int64_t now_ns
) noexcept nogil:
    # Of the time that is not charged yet; -1: nothing is.
    cdef int64_t weight
    cdef int64_t share_ns
    if not quotas_in_force(worker) & REQUEST_IN_FORCE:
        return -1
    if worker.charged_ns == 0:
        return 0
    weight = _weight(request)
    share_ns = max(now_ns - worker.charged_ns, <int64_t>0)
    if weight < worker.uncharged:
        share_ns = <int64_t>(<double>share_ns * <double>weight / <double>worker.uncharged)
    worker.uncharged = max(worker.uncharged - weight, <int64_t>0)
    worker.charged_ns += share_ns
    return share_ns


cdef void charge_produce(HotWorker* worker, Request* request, int silent) noexcept nogil:
    cdef int64_t size_bytes = <int64_t>request.total_bytes - SIZE_FIELD_BYTES * request.frames
    cdef int64_t now_ns = kb_now_ns()
    cdef int64_t time_ns = _share_ns(worker, request, now_ns)
    cdef int kind = NO_QUOTA
    if quotas_in_force(worker) & PRODUCE_IN_FORCE:
        kind = QUOTA_PRODUCE
    if silent:
        time_ns = -1
    if kind != NO_QUOTA or time_ns >= 0:
        request_charge(
            worker.context.request_channel, request, kind, size_bytes, 0, time_ns, now_ns)


cdef int charge_fetch(HotWorker* worker, Request* request, int64_t answer_bytes) noexcept nogil:
    cdef int64_t now_ns = kb_now_ns()
    cdef int64_t time_ns = _share_ns(worker, request, now_ns)
    cdef int kind = NO_QUOTA
    if quotas_in_force(worker) & FETCH_IN_FORCE:
        kind = QUOTA_FETCH
    if kind == NO_QUOTA and time_ns < 0:
        return 0
    return request_charge(
        worker.context.request_channel, request, kind, answer_bytes, 1, time_ns,
        now_ns) > 0


cdef int64_t charge_fetch_most(
    HotWorker* worker, Request* request, int64_t size_bytes
) noexcept nogil:
    return request_fetch_most(worker.context.request_channel, request, size_bytes)


cdef void charge_time(HotWorker* worker, Request* request) noexcept nogil:
    cdef int64_t now_ns = kb_now_ns()
    cdef int64_t time_ns = _share_ns(worker, request, now_ns)
    if time_ns >= 0:
        request_charge_answer(
            worker.context.request_channel, request, NULL, 0, time_ns, now_ns)
