# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.net._types cimport Processor, Request

cdef void request_note_sent(Request* request, int64_t sent_ns) noexcept nogil
cdef void request_times_free(Processor* processor) noexcept nogil
