# cython: language_level=3
from kbroker.requests._context cimport HotWorker
from kbroker.requests._produce_plan cimport ProduceFrame, ProducePlan

# Behind such a frame the connection ends: nothing of what follows is answered.
cdef int produce_frame_ends(const ProduceFrame* frame) noexcept nogil
cdef void produce_answer(HotWorker* worker, ProducePlan* plan) noexcept nogil
