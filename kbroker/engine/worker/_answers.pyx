# cython: language_level=3
"""A worker of the hot path, and where its answers gather until the run is done.

Answers of one run to one Processor are one push and at most one eventfd write, and so are its
notices of requests that are locally processed (REQUEST_LOCAL_PROCESSED) and answered later. Short
ones a handler sends by itself where the Processor sleeps (`net/_processor`), so it holds no lock.
Requests that need Python gather in the worker's cold list, each with its reason.
A worker belongs to one thread; nothing here takes a lock of its own.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kbroker.core._arena cimport arena_free
from kbroker.core._atomics cimport kb_load_int
from kbroker.core._limits cimport PROCESSORS_MAX
from kbroker.core._list cimport list_append
from kbroker.core._require cimport require, require_same
from kbroker.core._sync cimport kb_now_ns
from kbroker.net._processor cimport processor_push, processor_notify, processor_notify_or_answer
from kbroker.net._request_channel cimport request_channel_yield
from kbroker.net._types cimport READ_AHEAD, Part, Processor, Request, RequestList
from kbroker.replica._snapshot cimport reader_new
from kbroker.engine.worker._context cimport HotContext, HotWorker
from kbroker.engine.worker._worker_mode cimport MAY_UNPACK, MODE_RUN, worker_set_mode

cdef enum:
    SHORT_ANSWERS_BYTES = 64 << 10  # more is for the Processor, beside what the handler does next
    UNPACK_NS = 1000000


cdef HotWorker* worker_new(HotContext* context, int index) noexcept nogil:
    cdef HotWorker* worker = <HotWorker*>calloc(1, sizeof(HotWorker))
    if worker == NULL:
        return NULL
    worker.context = context
    worker.handler.index = index
    worker_set_mode(worker, MODE_RUN)
    worker.reader = reader_new(context.registry)
    if worker.reader == NULL:
        free(worker)
        return NULL
    return worker


cdef void worker_free(HotWorker* worker) noexcept nogil:
    if worker != NULL:
        arena_free(&worker.arena)
        free(worker)


cdef inline int _place_of(const HotWorker* worker, const Request* request) noexcept nogil:
    # Of its Processor, which must be the one that finds it there.
    cdef int index = request.processor.index
    require(0 <= index < PROCESSORS_MAX, "answers: a Processor has a place", index, PROCESSORS_MAX)
    require_same(worker.context.request_channel.processors[index], request.processor,
                 "answers: a request goes back to its own Processor")
    return index


cdef void worker_answer(HotWorker* worker, Request* request) noexcept nogil:
    """The request's action and parts are set; it leaves with the next hand-over."""
    _append(&worker.answers[_place_of(worker, request)], request)


cdef void put_off_push(HotWorker* worker, Request* request, int is_alone) noexcept nogil:
    """A produce with much to unpack, to the end of the run."""
    _append(&worker.put_off_alone if is_alone else &worker.put_off, request)


cdef int worker_unpacks_long(const HotWorker* worker, int64_t since_ns) noexcept nogil:
    """Whether it serves what was put off, and for so long that others may want to be served."""
    return worker.may & MAY_UNPACK and kb_now_ns() - since_ns > <int64_t>UNPACK_NS


cdef void _append(RequestList* requests, Request* request) noexcept nogil:
    list_append(&requests.head, &requests.tail, request, &request.next,
                "a worker's list: nothing is after the last")


cdef void worker_local_processed(HotWorker* worker, Request* request) noexcept nogil:
    """Nothing of it is left to do but to wait, which begins after the next hand-over."""
    cdef RequestList* local = &worker.local[_place_of(worker, request)]
    request.local_next = local.head
    local.head = request
    if local.tail == NULL:
        local.tail = request


cdef int64_t _answer_bytes(const Request* request) noexcept nogil:
    # More than is short, where it takes longer to send than to copy.
    cdef const Part* part
    cdef int64_t total = 0
    cdef int at
    if request.kind == READ_AHEAD:
        return SHORT_ANSWERS_BYTES + 1
    for at in range(request.part_count):
        part = &request.parts[at]
        total += part.length
        if part.fd >= 0 and part.warm_until < part.position + part.length:
            return SHORT_ANSWERS_BYTES + 1
    return total


cdef void worker_hand_over(HotWorker* worker) noexcept nogil:
    """One push to each Processor: answers, and notices of locally processed requests."""
    cdef int count = kb_load_int(&worker.context.request_channel.processor_count)
    cdef Processor** processors = worker.context.request_channel.processors
    cdef Processor* lending = NULL
    cdef uint64_t notified = 0  # a bit for each Processor
    cdef int64_t now_ns = 0
    cdef RequestList* answers
    cdef RequestList* local
    cdef Request* request
    cdef int64_t bytes_left
    cdef int index
    for index in range(count):
        answers = &worker.answers[index]
        local = &worker.local[index]
        if answers.head == NULL and local.head == NULL:
            continue
        if now_ns == 0:
            now_ns = kb_now_ns()
        bytes_left = SHORT_ANSWERS_BYTES
        request = answers.head
        while request != NULL:
            request.completed_ns = now_ns
            bytes_left -= _answer_bytes(request)
            request = request.next
        processor_push(processors[index], answers[0], local[0], bytes_left >= 0)
        # One at most is answered from here, after the others are notified: they would wait for it.
        # The timer and the controller answer none, since they may hold the lock of their worker.
        if bytes_left >= 0 and lending == NULL and worker.handler.index >= 0:
            lending = processors[index]
        else:
            notified |= <uint64_t>1 << index
        answers.head = NULL
        answers.tail = NULL
        local.head = NULL
        local.tail = NULL
    for index in range(count):
        if notified >> index & 1:
            processor_notify(processors[index])
    if lending != NULL:
        processor_notify_or_answer(lending)


cdef void worker_give_up_role(HotWorker* worker) noexcept nogil:
    """Before slow work: another handler may take what is queued meanwhile."""
    if worker.has_role:
        worker.has_role = 0
        request_channel_yield(worker.context.request_channel, &worker.handler)


cdef void cold_push(HotWorker* worker, Request* request, int reason) noexcept nogil:
    request.cold_reason = reason
    list_append(&worker.cold_head, &worker.cold_tail, request, &request.next,
                "for Python: nothing is after the last")
