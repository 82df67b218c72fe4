# cython: language_level=3
"""How long the request channel was being served: what a handler that sleeps does not count as idle.

A handler that sleeps is idle only while no request is queued and no handler takes: as long as one
serves run after run the others could not be of use, and the idle meter must fall to 0 when the
broker is saturated. So the channel adds up the time in which it was served, from the moment at
which the first request was received, and a sleeper leaves that time out.

All with the lock of the request channel held; inline, no module of its own.
"""

from libc.stdint cimport int64_t

from kbroker.net._types cimport RequestChannel


# Requests are there: since the first of them was received, or the last was served.
cdef inline void serving_locked(RequestChannel* channel, int64_t now_ns) noexcept nogil:
    cdef int64_t since_ns = now_ns
    if channel.serving_since_ns != 0:
        return
    if channel.head.received_ns < since_ns:
        since_ns = channel.head.received_ns
    if since_ns < channel.served_until_ns:
        since_ns = channel.served_until_ns
    channel.serving_since_ns = since_ns


# The role of taker ends. While something waits for Python no handler is idle.
cdef inline void served_locked(RequestChannel* channel, int64_t now_ns) noexcept nogil:
    if channel.python.head != NULL:
        return
    if channel.serving_since_ns != 0 and now_ns > channel.serving_since_ns:
        channel.served_ns += now_ns - channel.serving_since_ns
    channel.serving_since_ns = 0
    channel.served_until_ns = now_ns


cdef inline int64_t served_ns_locked(RequestChannel* channel, int64_t now_ns) noexcept nogil:
    if channel.serving_since_ns == 0 or now_ns < channel.serving_since_ns:
        return channel.served_ns
    return channel.served_ns + now_ns - channel.serving_since_ns
