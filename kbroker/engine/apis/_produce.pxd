# cython: language_level=3
from kbroker.net._types cimport Request
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._produce_plan cimport ProducePlan

cdef void produce_run(HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil
cdef ProducePlan* produce_plan(
    HotWorker* worker, Snapshot* snapshot, Request* request) noexcept nogil
cdef void produce_finish(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plans) noexcept nogil
cdef void produce_validate(HotWorker* worker, ProducePlan* plan) noexcept nogil
# Outside a snapshot, before the arena is reset: answers what `worker.unflushed` holds.
cdef void produce_flush(HotWorker* worker) noexcept nogil
