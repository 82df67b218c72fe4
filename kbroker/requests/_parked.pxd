# cython: language_level=3
from libc.stdint cimport uint64_t

from kbroker.requests._context cimport HotContext, HotWorker, ParkedFetch, ParkedWatch
from kbroker.requests._fetch_plan cimport FetchPlan

cdef enum ParkStatus:
    PARK_WAITS = 0                # it is parked; the plan must not be used any more
    PARK_READ_AGAIN = 1           # something came meanwhile, or it cannot be parked: resume now

cdef int parked_init(HotContext* context) noexcept nogil
cdef int park_fetch(HotWorker* worker, FetchPlan* plan) noexcept nogil

# For who completes them (_long_polls). Under the lock of the watch's partition:
cdef void watch_count_locked(ParkedWatch* watch) noexcept nogil
cdef int parked_has_enough(ParkedFetch* parked) noexcept nogil
# Where the deadline list of a tick begins.
cdef uint64_t parked_bucket(uint64_t tick) noexcept nogil
cdef int parked_complete(ParkedFetch* parked) noexcept nogil
cdef void parked_drop(ParkedFetch* parked) noexcept nogil
