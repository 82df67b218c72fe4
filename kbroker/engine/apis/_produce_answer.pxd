# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._produce_plan cimport ProduceFrame, ProducePlan

# `frame.error` is that of each of its partitions.
cdef void produce_fail_frame(ProduceFrame* frame) noexcept nogil
# After such a frame the connection ends: nothing that follows is answered.
cdef int produce_frame_ends(const ProduceFrame* frame) noexcept nogil
cdef void produce_answer(HotWorker* worker, ProducePlan* plan) noexcept nogil
