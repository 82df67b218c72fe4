# cython: language_level=3
from libc.stdint cimport uint64_t

from kbroker.replica._partition cimport Partition
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._context cimport HotWorker

cdef void long_polls_wake_touched(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef void long_polls_wake_advanced(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef void long_polls_wake(
    HotWorker* worker, Snapshot* snapshot, Partition* partition) noexcept nogil
cdef void long_polls_expire(HotWorker* worker, Snapshot* snapshot, uint64_t tick) noexcept nogil
cdef void long_polls_close(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef int long_polls_end_left(HotWorker* worker) noexcept nogil
cdef void long_polls_let_go(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef void long_polls_end_gathering(HotWorker* worker, Snapshot* snapshot) noexcept nogil
