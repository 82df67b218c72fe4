# cython: language_level=3
from libc.stdint cimport uint64_t

from kbroker.handlers._context cimport HotContext, HotWorker
from kbroker.handlers._fetch cimport FetchPlan
from kbroker.log._partition cimport Partition
from kbroker.replica._snapshot cimport Snapshot

cdef enum ParkStatus:
    PARK_WAITS = 0                # it is parked; the plan must not be used any more
    PARK_READ_AGAIN = 1           # something came meanwhile, or it cannot be parked: resume now

cdef int parked_init(HotContext* context) noexcept nogil
cdef int park_fetch(HotWorker* worker, FetchPlan* plan) noexcept nogil
cdef void parked_wake_touched(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef void parked_wake(HotWorker* worker, Snapshot* snapshot, Partition* partition) noexcept nogil
cdef void parked_expire(HotWorker* worker, Snapshot* snapshot, uint64_t tick) noexcept nogil
cdef void parked_close(HotWorker* worker, Snapshot* snapshot) noexcept nogil
cdef int parked_end_left(HotWorker* worker) noexcept nogil
