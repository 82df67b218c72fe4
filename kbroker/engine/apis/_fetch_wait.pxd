# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker, WaiterKind
from kbroker.engine.apis._fetch_plan cimport FetchPlan

# Not 0: it waits, and the plan must not be used any more. 0: something came meanwhile, or it cannot
# wait; it is to be read once more.
cdef int fetch_wait(
    HotWorker* worker, const WaiterKind* kind, FetchPlan* plan) noexcept nogil
