# cython: language_level=3
"""What requests are charged to the quotas of their clients; see _charges.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.core._atomics cimport kb_load_int
from kbroker.net._types cimport Request, RequestChannel


# Of which kinds there are quotas: 0, and nothing else here is to be called.
cdef inline int charges_in_force(RequestChannel* channel) noexcept nogil:
    return kb_load_int(&channel.quotas_in_force)


# How long its channel is not to be read, in ms; also in `throttle_ms` from now on, if that is less.
# `time_ns` of a thread, or below 0: it is not counted. `now_ns` is the clock's.
cdef int32_t request_charge(
    RequestChannel* channel, Request* request, int kind, int64_t size_bytes,
    int takes_back, int64_t time_ns, int64_t now_ns) noexcept nogil
# The most that the answer to a fetch of `size_bytes` may have.
cdef int64_t request_fetch_most(
    RequestChannel* channel, Request* request, int64_t size_bytes) noexcept nogil
# A request whose answer is written is charged the time, and the answer says `throttle_ms`. Its
# client id, or NULL: it is read from the frame.
cdef void request_charge_answer(
    RequestChannel* channel, Request* request, const uint8_t* client, int32_t client_length,
    int64_t time_ns, int64_t now_ns) noexcept nogil
# An answer that is written says `throttle_ms`, if this version has that field at its beginning.
cdef void request_tell_throttle(RequestChannel* channel, Request* request) noexcept nogil
