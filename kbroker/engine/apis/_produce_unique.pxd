# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._produce_plan cimport ProduceFrame

cdef int produce_unique(HotWorker* worker, ProduceFrame* frame) noexcept nogil
