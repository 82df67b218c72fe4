# cython: language_level=3
from kbroker.engine.apis._fetch_plan cimport FetchPlan
from kbroker.engine.worker._context cimport HotWorker

cdef void fetch_find_session(HotWorker* worker, FetchPlan* plan, int resumed) noexcept nogil
cdef void fetch_new_session(HotWorker* worker, FetchPlan* plan) noexcept nogil
cdef void fetch_leave_session(HotWorker* worker, FetchPlan* plan) noexcept nogil
