# cython: language_level=3
"""What an incremental fetch reads: the partitions that its session follows.

Of those that the client knows are missing, so many are looked for in one fetch and no more, each
time others: else forty bytes would have all hundred thousand looked up and answered again. Apache
Kafka answers them all, each time. One that the request names is looked for with it.
"""

from libc.stdint cimport int32_t, uint32_t

from kbroker.core._arena cimport arena_take
from kbroker.replica._closest cimport NO_PREFERRED_REPLICA
from kbroker.replica._fetch_session cimport SessionPartition
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport FetchPlan, FetchTarget

cdef enum:
    MISSING_AT_ONCE_MAX = 1000    # 44 KB of answer


cdef void _fill(FetchTarget* target, SessionPartition* entry, int by_id) noexcept nogil:
    target.entry = entry
    target.topic_id = entry.topic_id if by_id else NULL
    target.name = entry.name
    target.name_length = entry.name_length
    target.index = entry.index
    target.leader_epoch = entry.leader_epoch
    target.fetched_epoch = entry.fetched_epoch
    target.fetch_offset = entry.fetch_offset
    target.follower_start = entry.log_start_offset
    target.max_bytes = entry.max_bytes
    target.preferred = NO_PREFERRED_REPLICA


cdef int session_targets_locked(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    """-1: no memory."""
    cdef SessionPartition* entry = plan.session.first
    cdef uint32_t missing = min(plan.session.missing, <uint32_t>MISSING_AT_ONCE_MAX)
    cdef uint32_t count = plan.session.followed.count - plan.session.missing + missing
    plan.targets = <FetchTarget*>arena_take(
        &worker.arena, sizeof(FetchTarget) * (<size_t>count + 1))
    if plan.targets == NULL:
        return -1
    plan.leaves_out = missing < plan.session.missing
    plan.count = 0
    while plan.count < <int32_t>count:
        if not entry.missing or missing > 0:
            missing -= entry.missing
            _fill(&plan.targets[plan.count], entry, plan.session.by_id)
            plan.count += 1
        entry = entry.next
    return 0
