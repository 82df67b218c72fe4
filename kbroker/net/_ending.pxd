# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.net._types cimport Channel, Processor

# Connections that have sent nothing for connections.max.idle.ms.
cdef inline int has_idle(const Processor* processor) noexcept nogil:
    cdef int64_t bound_ns = processor.settings.idle_ns_max
    return (bound_ns > 0 and processor.oldest != NULL
            and processor.now_ns - processor.oldest.last_active_ns > bound_ns)


cdef void close_idle(Processor* processor) noexcept nogil
# Those whose handshake and authentication have taken too long, and those that were refused and do
# not end their side. To be called once a second.
cdef void close_opening(Processor* processor) noexcept nogil
# The oldest of them, when one has come and there are too many.
cdef void close_crowding(Processor* processor, const Channel* newest) noexcept nogil
# Those of whose answers too much waits in memory: of the most first, until it is little enough.
cdef void close_unread(Processor* processor) noexcept nogil
# The memory of closed connections whose requests have all come back.
cdef void reap_closed(Processor* processor) noexcept nogil
# One step of a Processor that stops: 1 when all is sent, closed and back, or given up.
cdef int has_stopped(Processor* processor, int64_t* drain_until_ns) noexcept nogil
