# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport FetchPlan

cdef int session_targets_locked(HotWorker* worker, FetchPlan* plan) noexcept nogil
