# cython: language_level=3
from kbroker.core._atomics cimport kb_load_i64
from kbroker.net._types cimport Channel, NetworkSettings, Request

# This answer has to wait; it counts once.
cdef void unsent_add(Channel* channel, Request* request) noexcept nogil
# And so have all that are queued for the socket.
cdef void unsent_add_queued(Channel* channel) noexcept nogil
# It has left.
cdef void unsent_remove(Channel* channel, const Request* request) noexcept nogil
# The channel is closed: what it counted is freed.
cdef void unsent_remove_all(Channel* channel) noexcept nogil
# Whether a channel with such answers may be read: there may be more of them then.
cdef int unsent_may_read(const Channel* channel) noexcept nogil
# Whether no other channel has any.
cdef int unsent_is_alone(const Channel* channel) noexcept nogil
# Whether connections must be closed: `_ending`.
cdef inline int unsent_are_too_many(NetworkSettings* settings) noexcept nogil:
    return kb_load_i64(&settings.unsent_total) > settings.unsent_max
