# cython: language_level=3
from kbroker.net._types cimport Channel, Processor, Request

cdef int channel_is_opening(const Channel* channel) noexcept nogil
# For one more. -1: no memory.
cdef int opening_make_room(Processor* processor) noexcept nogil
cdef void opening_add(Channel* channel) noexcept nogil
cdef void opening_gives_back(Channel* channel, const Request* request) noexcept nogil
cdef void opening_remove(Channel* channel) noexcept nogil
cdef Channel* opening_to_close(Processor* processor, const Channel* newest) noexcept nogil
