# cython: language_level=3
"""The list of the request channel's queue, and what counts as queued.

All with the lock of the request channel held; inline, no module of its own.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_store_i64
from kbroker.core._require cimport require_same
from kbroker.net._types cimport Request, RequestChannel


# At the end; the last one's `next` is NULL.
cdef inline void queue_add_locked(
    RequestChannel* channel, Request* first, Request* last
) noexcept nogil:
    if channel.tail == NULL:
        require_same(channel.head, NULL, "request queue: without a last there is no first")
        channel.head = first
    else:
        require_same(channel.tail.next, NULL, "request queue: nothing follows the last")
        channel.tail.next = first
    channel.tail = last


# The first one, which counts as before.
cdef inline void queue_unlink_locked(RequestChannel* channel, Request* request) noexcept nogil:
    require_same(channel.head, request, "request queue: what leaves is the first")
    channel.head = request.next
    if channel.head == NULL:
        require_same(channel.tail, request, "request queue: the only one is the last")
        channel.tail = NULL
    request.next = NULL


cdef inline void queue_count_locked(
    RequestChannel* channel, Request* request, int sign
) noexcept nogil:
    kb_store_i64(&channel.count, channel.count + sign * request.frames)
    channel.bytes += sign * <int64_t>request.total_bytes


cdef inline void queue_pop_locked(RequestChannel* channel, Request* request) noexcept nogil:
    queue_unlink_locked(channel, request)
    queue_count_locked(channel, request, -1)
