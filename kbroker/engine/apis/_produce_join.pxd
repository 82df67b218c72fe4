# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.replica._snapshot cimport Snapshot

# Of TransactionHooks.
cdef int produce_verify_here(HotWorker* worker, void* plan) noexcept nogil
cdef void* produce_join(HotWorker* worker, Snapshot* snapshot, void* plans) noexcept nogil
