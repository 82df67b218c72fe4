# cython: language_level=3
from libc.stdint cimport int16_t, int64_t

from kbroker.net._types cimport Handler, Processor, Request, RequestChannel

cdef enum TakeStatus:
    TAKE_RUN = 0                  # a run of hot requests; the caller keeps the role of taker
    TAKE_COLD = 1                 # one request for Python; the role is given up
    TAKE_IDLE = 2                 # nothing came in time, or the handler was called
    TAKE_CLOSED = 3               # the channel is closed and empty
    TAKE_ASIDE = 4                # a run for one slow file; request_channel_served_aside() ends it

cdef int request_channel_init(RequestChannel* channel) noexcept nogil
cdef Request* request_channel_push(
    RequestChannel* channel, Request* first, Request** last, int64_t now_ns) noexcept nogil
cdef int request_channel_waits(RequestChannel* channel) noexcept nogil
cdef int request_channel_sleeps(RequestChannel* channel) noexcept nogil
cdef void request_channel_look(RequestChannel* channel, int64_t now_ns) noexcept nogil
cdef int request_channel_take(
    RequestChannel* channel, Handler* handler, int had_role, int64_t timeout_ns,
    Request** run, int* count) noexcept nogil
cdef void request_channel_yield(RequestChannel* channel, Handler* handler) noexcept nogil
cdef int request_channel_enter_python(
    RequestChannel* channel, Handler* handler, int in_any_case,
    Request** first, Request** last) noexcept nogil
cdef void request_channel_give_to_python(
    RequestChannel* channel, Request** first, Request** last) noexcept nogil
cdef void request_channel_add_handler(RequestChannel* channel, Handler* handler) noexcept nogil
cdef void request_channel_retire(RequestChannel* channel, Handler* handler) noexcept nogil
cdef void request_channel_left(RequestChannel* channel) noexcept nogil
cdef int request_channel_is_held(RequestChannel* channel, Handler* handler) noexcept nogil
cdef int request_channel_set_aside(
    RequestChannel* channel, Request* request, void* slow_file, int64_t* late_from_ns, int waits
) noexcept nogil
cdef void request_channel_served_aside(
    RequestChannel* channel, Handler* handler) noexcept nogil
cdef void request_channel_shorten_runs(RequestChannel* channel) noexcept nogil
cdef void request_channel_call(RequestChannel* channel) noexcept nogil
cdef void request_channel_close(RequestChannel* channel) noexcept nogil
cdef int api_is_hot(RequestChannel* channel, int16_t key, int16_t version) noexcept nogil
cdef int request_is_hot(RequestChannel* channel, Request* request) noexcept nogil
