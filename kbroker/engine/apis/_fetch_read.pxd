# cython: language_level=3
from kbroker.engine.apis._fetch_plan cimport FetchPlan
from kbroker.engine.worker._context cimport HotWorker

cdef void fetch_read_all(HotWorker* worker, FetchPlan* plan) noexcept nogil
