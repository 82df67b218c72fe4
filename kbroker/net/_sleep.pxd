# cython: language_level=3
"""Whether a Processor's thread sleeps, and waking it: one atomic word, an eventfd where it must be.

    AWAKE    it looks for new work before it sleeps again
    ASLEEP   in epoll_wait, or about to be
    LENT     in epoll_wait, and a handler does its work, and looks for more when it is done
"""

from libc.stdint cimport uint64_t
from posix.unistd cimport write

from kbroker.core._atomics cimport kb_cas_int, kb_store_int
from kbroker.net._types cimport Processor

cdef enum:
    AWAKE = 0
    ASLEEP = 1
    LENT = 2


cdef inline void interrupt_sleep(Processor* processor) noexcept nogil:
    cdef uint64_t one = 1
    kb_store_int(&processor.sleeping, AWAKE)
    write(processor.event_fd, &one, 8)


# After the change that it is to see: at most one eventfd write for each time that it sleeps.
cdef inline void wake_processor(Processor* processor) noexcept nogil:
    cdef uint64_t one = 1
    if kb_cas_int(&processor.sleeping, ASLEEP, AWAKE):
        write(processor.event_fd, &one, 8)
