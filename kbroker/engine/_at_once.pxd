# cython: language_level=3
from kbroker.engine.worker._context cimport HotContext

cdef int at_once_cover(HotContext* context) noexcept nogil
cdef void at_once_end(HotContext* context) noexcept nogil
