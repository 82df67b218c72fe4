# cython: language_level=3
"""The list of the request channel's queue, and what counts as queued.

All with the lock of the request channel held; inline, no module of its own.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_store_i64
from kbroker.core._list cimport list_append_all, list_remove_first
from kbroker.net._types cimport Request, RequestChannel


# At the end.
cdef inline void queue_add_locked(
    RequestChannel* channel, Request* first, Request* last
) noexcept nogil:
    list_append_all(&channel.head, &channel.tail, first, last, &last.next,
                    "request queue: nothing follows the last")


# The first one, which counts as before.
cdef inline void queue_unlink_locked(RequestChannel* channel, Request* request) noexcept nogil:
    list_remove_first(&channel.head, &channel.tail, request, &request.next,
                      "request queue: what leaves is the first")


cdef inline void queue_count_locked(
    RequestChannel* channel, Request* request, int sign
) noexcept nogil:
    kb_store_i64(&channel.count, channel.count + sign * request.frames)
    channel.bytes += sign * <int64_t>request.total_bytes


cdef inline void queue_pop_locked(RequestChannel* channel, Request* request) noexcept nogil:
    queue_unlink_locked(channel, request)
    queue_count_locked(channel, request, -1)
