# cython: language_level=3
from libc.stdint cimport int16_t

from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._produce_plan cimport ProduceFrame, ProducePlan, ProduceTopic

# Where there is an authorizer: before the plan's frames are parsed.
cdef void produce_begin_rights(HotWorker* worker, ProducePlan* plan) noexcept nogil
# The error of a topic's partitions; `otherwise`: that of one that its client may write.
cdef int16_t produce_refused(
    HotWorker* worker, ProducePlan* plan, const ProduceTopic* topic, int16_t otherwise
) noexcept nogil
# Whether its client may write transactions of the frame's id, which is one; or it is not known.
cdef int produce_may_use_id(
    HotWorker* worker, ProducePlan* plan, ProduceFrame* frame) noexcept nogil
# To Python, which decides what is unknown.
cdef void produce_ask_rights(HotWorker* worker, ProducePlan* plan) noexcept nogil
# To Python, for the plan's reason; with its verdicts, if there is an authorizer.
cdef void produce_leave_to_python(HotWorker* worker, ProducePlan* plan) noexcept nogil
