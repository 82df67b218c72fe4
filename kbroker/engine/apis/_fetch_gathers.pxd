# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport FetchPlan

cdef int fetch_gathers(HotWorker* worker, FetchPlan* plan) noexcept nogil
