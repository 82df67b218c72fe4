# cython: language_level=3
from libc.stdint cimport uint64_t

from kbroker.core._atomics cimport kb_load_int, kb_load_ptr
from kbroker.replica._partition cimport Partition
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._context cimport HotWorker, ParkedTable

cdef void long_polls_wake_touched(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef void long_polls_wake_advanced(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef void long_polls_wake(
    HotWorker* worker, Snapshot* snapshot, Partition* partition) noexcept nogil
cdef void long_polls_expire(HotWorker* worker, Snapshot* snapshot, uint64_t tick) noexcept nogil
cdef void long_polls_close(HotWorker* worker, Snapshot* snapshot) noexcept nogil

# Between two runs. 0: there was nothing to end, and nothing for Python.
cdef inline int long_polls_end_left(HotWorker* worker) noexcept nogil:
    cdef ParkedTable* table = &worker.context.parked
    if (kb_load_ptr(&table.left) == NULL and kb_load_int(&table.tick_count) == 0
            and kb_load_ptr(&table.asking) == NULL):
        return 0
    long_polls_end_listed(worker)
    return 1


cdef void long_polls_end_listed(HotWorker* worker) noexcept nogil

cdef void long_polls_let_go(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef void long_polls_end_gathering(HotWorker* worker, Snapshot* snapshot) noexcept nogil
