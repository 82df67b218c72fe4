# cython: language_level=3
from kbroker.net._types cimport (
    NetworkSettings,
    NewConnection,
    Processor,
    RequestChannel,
    RequestList,
)

cdef Processor* processor_new(
    int index, NetworkSettings* settings, RequestChannel* channel) noexcept nogil
cdef int processor_start(Processor* processor) noexcept nogil
cdef void processor_retire(Processor* processor) noexcept nogil
cdef int processor_has_retired(Processor* processor) noexcept nogil
cdef int processor_is_serving(Processor* processor) noexcept nogil
cdef int processor_start_again(Processor* processor) noexcept nogil
cdef void processor_stop(Processor* processor, int at_once) noexcept nogil
cdef void processor_join(Processor* processor) noexcept nogil
cdef void processor_free(Processor* processor) noexcept nogil
cdef int processor_offer(Processor* processor, NewConnection* connection) noexcept nogil
cdef void processor_push(
    Processor* processor, RequestList answered, RequestList local, int are_short) noexcept nogil
cdef void processor_notify(Processor* processor) noexcept nogil
cdef void processor_notify_or_answer(Processor* processor) noexcept nogil
