# cython: language_level=3
"""Where a request's time went, split as Kafka splits it, in histograms per API.

    received -> taken by a handler -> waits for something -> answered -> with its Processor -> sent
       request queue        local                   remote     response queue     response send

A request carries the moments; its Processor counts them when the last byte of the answer is in the
socket, so each histogram has one writer and needs no lock. A train counts with every frame, acks=0
with the moment at which an answer would have left. Moments are read once a turn or a run, so that
one may lie a little before the one it follows: such a part counts as 0.

An API's table is made with its first answer, so that a key that is not served costs nothing;
fetches of followers have one of their own, since they wait for something else than a consumer's.
Readers on any thread add the Processors' tables up (`_request_figures`).
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from kbroker.core._atomics cimport kb_load_ptr, kb_store_ptr
from kbroker.core._figures cimport kb_count, kb_time_bucket
from kbroker.core._limits cimport API_KEYS_MAX, API_VERSIONS_MAX
from kbroker.net._types cimport (
    ACTION_NO_OP,
    ACTION_SEND,
    TIME_LOCAL,
    TIME_REMOTE,
    TIME_REQUEST_QUEUE,
    TIME_RESPONSE_QUEUE,
    TIME_RESPONSE_SEND,
    TIME_TABLES,
    TIME_TOTAL,
    Processor,
    Request,
    RequestTimes,
)


cdef RequestTimes* _table(Request* request) noexcept nogil:
    cdef Processor* processor = request.processor
    cdef RequestTimes* times
    cdef int place = request.api_key
    if place < 0 or place >= API_KEYS_MAX:
        return NULL
    if request.from_follower:
        place = API_KEYS_MAX
    times = processor.times[place]
    if times == NULL and (request.action == ACTION_SEND or request.action == ACTION_NO_OP):
        times = <RequestTimes*>calloc(1, sizeof(RequestTimes))
        kb_store_ptr(<void**>&processor.times[place], times)
    return times


cdef inline void _note(RequestTimes* times, int part, int64_t ns, int64_t frames) noexcept nogil:
    if ns < 0:
        ns = 0
    kb_count(&times.sum_ns[part], ns * frames)
    kb_count(&times.buckets[part][kb_time_bucket(ns)], frames)


cdef void request_note_sent(Request* request, int64_t sent_ns) noexcept nogil:
    """In the Processor's turn, once for each request, before it is free again."""
    cdef RequestTimes* times = _table(request)
    cdef int64_t frames = request.frames
    cdef int64_t local_until_ns = request.waiting_ns
    if times == NULL:
        return
    if local_until_ns == 0:
        local_until_ns = request.completed_ns
    if 0 <= request.api_version < API_VERSIONS_MAX:
        kb_count(&times.versions[request.api_version], frames)
    _note(times, TIME_REQUEST_QUEUE, request.dequeued_ns - request.received_ns, frames)
    _note(times, TIME_LOCAL, local_until_ns - request.dequeued_ns, frames)
    _note(times, TIME_REMOTE, request.completed_ns - local_until_ns, frames)
    _note(times, TIME_RESPONSE_QUEUE, request.picked_ns - request.completed_ns, frames)
    _note(times, TIME_RESPONSE_SEND, sent_ns - request.picked_ns, frames)
    _note(times, TIME_TOTAL, sent_ns - request.received_ns, frames)


cdef void request_times_free(Processor* processor) noexcept nogil:
    """After the thread has ended."""
    cdef int key
    for key in range(TIME_TABLES):
        free(kb_load_ptr(<void**>&processor.times[key]))
        processor.times[key] = NULL
