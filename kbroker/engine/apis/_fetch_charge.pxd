# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport FetchPlan

# Of a plan that was parsed: its answer has no more than its client may have in a window.
cdef void fetch_keep_to_quota(HotWorker* worker, FetchPlan* plan) noexcept nogil
# Charges what was read. 1: its client is over a quota, and the plan has nothing to answer any more.
cdef int fetch_is_over_quota(HotWorker* worker, FetchPlan* plan) noexcept nogil
