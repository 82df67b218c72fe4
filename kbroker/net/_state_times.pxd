# cython: language_level=3
from kbroker.net._types cimport Channel, Request

# It begins in the state that it has.
cdef void state_times_begin(Channel* channel) noexcept nogil
# It leaves its state for this one.
cdef void state_times_enter(Channel* channel, int state) noexcept nogil
# It asks for this, and its times count for that from now on.
cdef void state_times_use(Channel* channel, const Request* request) noexcept nogil
