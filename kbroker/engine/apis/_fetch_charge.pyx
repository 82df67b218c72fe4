# cython: language_level=3
"""Fetches of consumers that have a quota.

As in Apache Kafka the answer's bytes are charged before it is sent. Where they are too many it is
sent without records, and they do not count: the client asks again, for the same records, when the
time that the answer names is over. The session's epoch has moved on; what it knows of its
partitions stays, and a full fetch gets no session. An answer never has more bytes than the quota
allows in a window, so that there is an answer that is within the quota.

Followers have no quotas: their rate is `_leader_throttle`. The worker's own thread.
"""

from libc.stdint cimport int64_t

from kbroker.core._error_codes cimport NO_ERROR
from kbroker.engine.apis._fetch_answer cimport fetch_answer_size, fetch_drop_slices
from kbroker.engine.apis._fetch_plan cimport FetchPlan
from kbroker.engine.worker._charges cimport charge_fetch, charge_fetch_most, quotas_in_force
from kbroker.engine.worker._context cimport HotWorker
from kbroker.quota._quota_table cimport FETCH_IN_FORCE


cdef void fetch_keep_to_quota(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    cdef int64_t most
    if plan.replica_id >= 0 or not quotas_in_force(worker) & FETCH_IN_FORCE:
        return
    most = charge_fetch_most(worker, plan.request, plan.max_bytes)
    if most < plan.max_bytes:
        plan.max_bytes = <int>most
    if plan.min_bytes > plan.max_bytes:
        plan.min_bytes = plan.max_bytes


cdef int fetch_is_over_quota(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    if plan.replica_id >= 0 or not charge_fetch(worker, plan.request, fetch_answer_size(plan)):
        return 0
    if plan.error == NO_ERROR:    # else its answer has no records
        fetch_drop_slices(plan)
        plan.count = 0
        plan.read_bytes = 0
        plan.answer_session_id = plan.session_id if plan.incremental else 0
    return 1
