# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._produce_plan cimport ProduceFrame

# A frame just parsed. Where it names one partition there is nothing to drop.
cdef inline int names_one_partition(const ProduceFrame* frame) noexcept nogil:
    return frame.topic_count == 1 and frame.topics[0].partition_count == 1


# Drops what is named again, and empty topics; -1: no memory.
cdef int produce_unique(HotWorker* worker, ProduceFrame* frame) noexcept nogil
