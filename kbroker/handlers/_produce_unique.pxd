# cython: language_level=3
from kbroker.handlers._context cimport HotWorker
from kbroker.handlers._produce cimport ProduceFrame

cdef int produce_unique(HotWorker* worker, ProduceFrame* frame) noexcept nogil
