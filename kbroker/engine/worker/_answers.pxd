# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.net._types cimport Request
from kbroker.engine.worker._context cimport HotContext, HotWorker

cdef HotWorker* worker_new(HotContext* context, int index) noexcept nogil
cdef void worker_free(HotWorker* worker) noexcept nogil
cdef void worker_answer(HotWorker* worker, Request* request) noexcept nogil
cdef void worker_local_processed(HotWorker* worker, Request* request) noexcept nogil
cdef void worker_hand_over(HotWorker* worker) noexcept nogil
cdef int worker_unpacks_long(const HotWorker* worker, int64_t since_ns) noexcept nogil
cdef void put_off_push(HotWorker* worker, Request* request, int is_alone) noexcept nogil
cdef void worker_give_up_role(HotWorker* worker) noexcept nogil
cdef void cold_push(HotWorker* worker, Request* request, int reason) noexcept nogil
