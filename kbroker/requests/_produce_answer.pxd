# cython: language_level=3
from kbroker.requests._context cimport HotWorker
from kbroker.requests._produce_plan cimport ProducePlan

cdef void produce_answer(HotWorker* worker, ProducePlan* plan) noexcept nogil
