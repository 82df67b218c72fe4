# cython: language_level=3
from kbroker.requests._context cimport HotWorker
from kbroker.requests._produce_plan cimport ProduceFrame

cdef int produce_unique(HotWorker* worker, ProduceFrame* frame) noexcept nogil
