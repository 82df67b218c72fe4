# cython: language_level=3
from kbroker.handlers._context cimport HotWorker
from kbroker.handlers._produce cimport ProducePlan

cdef void produce_answer(HotWorker* worker, ProducePlan* plan) noexcept nogil
