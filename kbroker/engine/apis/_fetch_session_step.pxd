# cython: language_level=3
from kbroker.engine.apis._fetch_plan cimport FINAL_EPOCH, INITIAL_EPOCH, FetchPlan
from kbroker.engine.worker._context cimport HotWorker

# Else there is none to be found, and none to be closed.
cdef inline int fetch_names_session(const FetchPlan* plan) noexcept nogil:
    return plan.session_id != 0 or (
        plan.session_epoch != FINAL_EPOCH and plan.session_epoch != INITIAL_EPOCH)


cdef void fetch_find_session(HotWorker* worker, FetchPlan* plan, int resumed) noexcept nogil
cdef void fetch_new_session(HotWorker* worker, FetchPlan* plan) noexcept nogil
cdef inline void fetch_leave_session(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    if plan.session != NULL:
        fetch_give_back_session(worker, plan)


cdef void fetch_give_back_session(HotWorker* worker, FetchPlan* plan) noexcept nogil
