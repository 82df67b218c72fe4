# cython: language_level=3
"""What the hot path charges to the quotas of clients; see _charges.pyx."""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_load_int
from kbroker.net._types cimport Request
from kbroker.engine.worker._answers cimport worker_answer
from kbroker.engine.worker._context cimport HotWorker


cdef inline int quotas_in_force(HotWorker* worker) noexcept nogil:
    return kb_load_int(&worker.context.request_channel.quotas_in_force)


# The requests of a run are charged their shares of the time from now on; NULL: none is.
cdef inline void charges_begin(HotWorker* worker, Request* run) noexcept nogil:
    worker.charged_ns = 0
    worker.uncharged = 0
    if run != NULL and quotas_in_force(worker):
        charges_share(worker, run)


cdef void charges_share(HotWorker* worker, Request* run) noexcept nogil
# Before the answer is written. `silent`: there is none, and its time is not counted.
cdef void charge_produce(HotWorker* worker, Request* request, int silent) noexcept nogil
# 1: the answer is to have no records, and its bytes do not count.
cdef int charge_fetch(HotWorker* worker, Request* request, int64_t answer_bytes) noexcept nogil
# The most that an answer may have, where that many bytes are asked for.
cdef int64_t charge_fetch_most(
    HotWorker* worker, Request* request, int64_t size_bytes) noexcept nogil
cdef void charge_time(HotWorker* worker, Request* request) noexcept nogil


# An answer that begins with its throttle time, and is written.
cdef inline void worker_answer_charged(HotWorker* worker, Request* request) noexcept nogil:
    if quotas_in_force(worker):
        charge_time(worker, request)
    worker_answer(worker, request)
