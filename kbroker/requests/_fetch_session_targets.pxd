# cython: language_level=3
from kbroker.requests._context cimport HotWorker
from kbroker.requests._fetch_plan cimport FetchPlan

cdef int session_targets_locked(HotWorker* worker, FetchPlan* plan) noexcept nogil
