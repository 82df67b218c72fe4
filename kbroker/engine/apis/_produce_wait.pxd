# cython: language_level=3
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._produce_plan cimport ProducePlan

# Answers a request whose batches are appended, or has it wait until their followers have them: from
# produce_wait() on, which follows a worker_hand_over().
cdef void produce_answer_or_park(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plan) noexcept nogil
cdef void produce_wait(HotWorker* worker, Snapshot* snapshot) noexcept nogil
