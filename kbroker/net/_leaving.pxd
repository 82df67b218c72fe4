# cython: language_level=3
"""A connection that goes, for the holders of its requests that wait: `left` of a `Channel`.

In the Processor's turn, without the GIL. The request path keeps the number under its own lock.
"""

from kbroker.net._types cimport LEFT, LEFT_ALL, Channel, RequestChannel


cdef inline void report_left(Channel* channel, int how) noexcept nogil:
    # A request of it that waits somewhere need not wait any longer.
    cdef RequestChannel* request_channel = channel.processor.request_channel
    if request_channel != NULL and request_channel.on_left != NULL:
        request_channel.on_left(request_channel.hot_context, channel, how)


cdef inline void note_all_came_back(Channel* channel) noexcept nogil:
    # At once, and not when the closed channel is looked at next: its Processor may sleep until
    # then, and what waits for this is, among others, records that a client of it held.
    if channel.left == LEFT and channel.in_flight == 0 and channel.stalled == NULL:
        report_left(channel, LEFT_ALL)
