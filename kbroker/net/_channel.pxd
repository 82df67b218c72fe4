# cython: language_level=3
from libc.stdint cimport uint32_t

from kbroker.net._types cimport Channel, NewConnection, Processor, Request

cdef Channel* channel_open(
    Processor* processor, NewConnection* connection) noexcept nogil
cdef void channel_on_readable(Channel* channel, int ended) noexcept nogil
cdef void channel_on_writable(Channel* channel) noexcept nogil
cdef void channel_shake(Channel* channel) noexcept nogil
cdef int channel_has_work(Channel* channel) noexcept nogil
cdef void channel_turn(Channel* channel) noexcept nogil
cdef void channel_received(Channel* channel, Request* request) noexcept nogil
cdef void channel_local_processed(Channel* channel, Request* request) noexcept nogil
cdef void channel_end_throttles(Processor* processor) noexcept nogil
cdef void channel_answer(Channel* channel, Request* request) noexcept nogil
cdef void channel_close(Channel* channel) noexcept nogil
cdef int channel_reap(Channel* channel) noexcept nogil
