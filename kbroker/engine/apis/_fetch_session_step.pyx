# cython: language_level=3
"""The session of a Fetch (KIP-227): found, changed, made and left.

An incremental fetch changes its session's partitions under the session's lock, which
`fetch_find_session` takes and `fetch_leave_session` gives back; it is never held while the request
is parked. A full fetch with epoch 0 gets a session when it is answered. On a thread that may not
wait for locks, a session that another worker has, or a large one, gives the request back.

Locks: session.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

from kbroker.core._error_codes cimport (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NO_ERROR,
)
from kbroker.core._lock_order cimport RANK_SESSION, lock_ranked, try_lock_ranked, unlock_ranked
from kbroker.engine.apis._fetch_plan cimport (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PARTITIONS_AT_ONCE_MAX,
    TOPIC_IDS_FROM,
    FetchPlan,
    FetchTarget,
)
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.worker._worker_mode cimport MAY_WAIT_FOR_LOCKS
from kbroker.replica._fetch_session cimport (
    SessionPartition,
    session_bytes,
    session_close,
    session_create,
    session_find,
    session_follow_locked,
    session_forget_locked,
    session_next_epoch,
    session_note_missing_locked,
    session_partition_locked,
    session_release,
)


cdef int _enter_session(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # 0: another worker has it, or it is large, and this thread waits for nothing.
    if worker.may & MAY_WAIT_FOR_LOCKS:
        lock_ranked(&plan.session.lock, RANK_SESSION)
        return 1
    if try_lock_ranked(&plan.session.lock, RANK_SESSION):
        if plan.session.followed.count <= PARTITIONS_AT_ONCE_MAX:
            return 1
        unlock_ranked(&plan.session.lock, RANK_SESSION)
    session_release(worker.context.sessions, plan.session)
    plan.session = NULL
    worker.gives_back = 1
    return 0


cdef void fetch_find_session(HotWorker* worker, FetchPlan* plan, int resumed) noexcept nogil:
    # Sets plan.session (locked) for an incremental fetch, or plan.error.
    if plan.session_epoch == FINAL_EPOCH or plan.session_epoch == INITIAL_EPOCH:
        if plan.session_id != 0 and not resumed:
            session_close(worker.context.sessions, plan.session_id)
        return
    plan.incremental = 1
    plan.session = session_find(worker.context.sessions, plan.session_id)
    if plan.session == NULL:
        plan.error = FETCH_SESSION_ID_NOT_FOUND
        return
    if not _enter_session(worker, plan):
        return
    if plan.session.epoch != plan.session_epoch and not resumed:
        plan.error = INVALID_FETCH_SESSION_EPOCH
    elif plan.session.by_id != (plan.version >= TOPIC_IDS_FROM):
        plan.error = FETCH_SESSION_TOPIC_ID_ERROR
    elif not resumed:             # else its epoch moved on when it came
        plan.session.epoch = session_next_epoch(plan.session.epoch)
        if _change_session_locked(plan) != 0:
            plan.error = FETCH_SESSION_ID_NOT_FOUND  # it ends: the client fetches in full
    plan.answer_session_id = 0 if plan.error else plan.session_id


cdef int _follow_locked(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    # Adds a partition to the plan's session, or updates its position; -1: the session is full.
    cdef int full = 0
    cdef uint32_t known = plan.session.followed.count
    cdef SessionPartition* entry = session_follow_locked(
        plan.session, target.topic_id, target.name, target.name_length, target.index, &full)
    if entry != NULL:
        if plan.session.followed.count != known:
            plan.session.allowed[0] = 0  # who may read all the others
        entry.fetch_offset = target.fetch_offset
        entry.log_start_offset = target.follower_start
        entry.max_bytes = <int32_t>target.max_bytes
        entry.leader_epoch = target.leader_epoch
        entry.fetched_epoch = target.fetched_epoch
        session_note_missing_locked(plan.session, entry, 0)  # it is asked for: it is looked for
        entry.sent_error = NO_ERROR  # a client that names it again gets its error again
        if target.name_hash != 0:
            entry.name_hash = target.name_hash
        target.entry = entry
    return -1 if full else 0


cdef int _change_session_locked(FetchPlan* plan) noexcept nogil:
    cdef SessionPartition* entry
    cdef FetchTarget* target
    cdef int32_t i
    for i in range(plan.count):
        if _follow_locked(plan, &plan.targets[i]) != 0:
            return -1
        plan.targets[i].entry = NULL  # the same request may forget it; see session_targets_locked
    for i in range(plan.forgotten_count):
        target = &plan.forgotten[i]
        entry = session_partition_locked(
            plan.session, target.topic_id, target.name, target.name_length, target.index)
        if entry != NULL:
            session_forget_locked(plan.session, entry)
    return 0


cdef void fetch_new_session(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # A full fetch with epoch 0 gets a session, if there is room for one.
    cdef int64_t names_bytes = 0
    cdef int32_t i
    for i in range(plan.count):
        names_bytes += plan.targets[i].name_length
    plan.session = session_create(
        worker.context.sessions, plan.version >= TOPIC_IDS_FROM,
        plan.replica_id >= 0 and not plan.is_stranger,
        session_bytes(<uint32_t>plan.count, names_bytes))
    if plan.session == NULL:
        return
    lock_ranked(&plan.session.lock, RANK_SESSION)
    plan.answer_session_id = plan.session.session_id
    for i in range(plan.count):
        if _follow_locked(plan, &plan.targets[i]) != 0:
            _do_without_session(worker, plan)
            return


cdef void _do_without_session(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # Others have taken the room meanwhile.
    cdef int32_t i
    for i in range(plan.count):
        plan.targets[i].entry = NULL
    plan.answer_session_id = 0
    _end_session(worker, plan, plan.session.session_id)


cdef void _end_session(HotWorker* worker, FetchPlan* plan, int32_t session_id) noexcept nogil:
    fetch_leave_session(worker, plan)
    session_close(worker.context.sessions, session_id)


cdef void fetch_give_back_session(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    unlock_ranked(&plan.session.lock, RANK_SESSION)
    session_release(worker.context.sessions, plan.session)
    plan.session = NULL
