# cython: language_level=3
"""Fetch without the GIL: find the session, read, answer or park.

One read before waiting and one at completion: a fetch that found enough bytes, an error, or may not
wait is answered at once; any other is parked on its partitions and comes back through `_complete`,
which reads the request again from the copy it kept and answers with the records there are.

Sessions (KIP-227) are C: a full fetch with epoch 0 makes one when it is answered, an incremental
one changes and serves its partitions under the session's lock, which is never held while parked.

A follower's fetch reads to the log's end and says that all below where it begins is in its log:
that is noted once, before the read, and may move the high watermark (`partition_note_fetch`). In a
session it says so of every followed partition. Waiters are woken when the run's fetches are done.

A consumer that may be sent to a follower (since version 11) reads from any replica, up to its high
watermark; where racks count, a leader answers with a better one (`replica/_closest`).

A run never waits for the disk: a fetch that would is set aside and comes again in a run that may
(`net/_aside`). On a Processor's thread (`_at_once`) it waits for nothing at all: one that would, is
of many partitions or has to park is given back, and comes again in a run.

Ranges up to `inline_range_bytes` are read into the answer (one send); longer ones go by sendfile
with their segment held. Protocol: FetchRequest and FetchResponse 4-18.
Locks: session, then what partition_read takes.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kbroker.core._arena cimport ArenaMark, arena_back_to, arena_mark, arena_take
from kbroker.core._atomics cimport kb_load_int
from kbroker.core._error_codes cimport (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NO_ERROR,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
)
from kbroker.core._figures cimport kb_count
from kbroker.core._lock_order cimport RANK_SESSION, lock_ranked, try_lock_ranked, unlock_ranked
from kbroker.core._sync cimport kb_now_ns
from kbroker.log.engine._aborted cimport aborted_collect
from kbroker.log.engine._segment cimport slice_release
from kbroker.log.engine._types cimport (
    READ_WOULD_WAIT,
    WAITS_FOR_DISK,
    WAITS_FOR_LOCKS,
    WAITS_FOR_NOTHING,
    FileSlice,
    Patience,
)
from kbroker.net._request_channel cimport request_channel_push, request_channel_set_aside
from kbroker.net._types cimport ACTION_CLOSE, Request
from kbroker.replica._closest cimport NO_PREFERRED_REPLICA, partition_closest
from kbroker.replica._fetch_session cimport (
    SessionPartition,
    session_close,
    session_bytes,
    session_create,
    session_find,
    session_follow_locked,
    session_forget_locked,
    session_next_epoch,
    session_note_missing_locked,
    session_partition_locked,
    session_release,
)
from kbroker.replica._partition cimport (
    NEWS_AT_ONCE,
    NEWS_SOON,
    TO_LAST_STABLE,
    TO_LOG_END,
    NotedFetch,
    Partition,
    ReplicaOffsets,
    partition_epoch_end,
    partition_note_fetch,
    partition_offsets,
    partition_read,
)
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._answers cimport cold_push, worker_answer
from kbroker.engine.worker._asked_rights cimport asked_rights_drop
from kbroker.engine.worker._charges cimport quotas_in_force
from kbroker.engine.worker._context cimport (
    REASON_RIGHTS, WAITS_FOR_BYTES, HotWorker, ParkedRequest, WaiterKind)
from kbroker.engine.apis._fetch_answer cimport (
    fetch_answer,
    fetch_count_reads,
    fetch_drop_slices,
)
from kbroker.engine.apis._fetch_charge cimport fetch_is_over_quota, fetch_keep_to_quota
from kbroker.engine.apis._fetch_gathers cimport fetch_gathers
from kbroker.engine.apis._fetch_look_up cimport fetch_look_up
from kbroker.engine.apis._fetch_plan cimport FINAL_EPOCH, TOPIC_IDS_FROM, FetchPlan, FetchTarget
from kbroker.engine.apis._fetch_request cimport fetch_parse
from kbroker.engine.apis._fetch_rights cimport (
    fetch_keep_rights, fetch_refuse_stranger, fetch_rights_are_unknown)
from kbroker.engine.apis._fetch_session_targets cimport session_targets_locked
from kbroker.engine.apis._fetch_unique cimport fetch_unique
from kbroker.engine.apis._fetch_wait cimport fetch_wait
from kbroker.engine.worker._leader_throttle cimport leader_throttle_holds
from kbroker.engine.waiting._parked cimport note_advanced
from kbroker.engine.worker._worker_mode cimport (
    MAY_PARK,
    MAY_WAIT_FOR_DISK,
    MAY_WAIT_FOR_LOCKS,
    MODE_ASIDE,
    worker_add_mode,
    worker_set_mode,
)

cdef enum:
    INITIAL_EPOCH = 0

    FETCH_TAKEN_UP = 1            # its session's step is done; it may yet be parked
    FETCH_LAST = 2                # it waited: answered with the records there are

    PARTITIONS_AT_ONCE_MAX = 16   # more are more work than waking a handler
    BYTES_AT_ONCE_MAX = 256 * 1024  # more keep the others of a Processor waiting


cdef WaiterKind _FETCH = WaiterKind(
    waits_for=WAITS_FOR_BYTES, complete=_complete, give_up=NULL, free_kept=NULL)


# --- session -------------------------------------------------------------------------------------

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


cdef void _find_session(HotWorker* worker, FetchPlan* plan, int resumed) noexcept nogil:
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
    # Into the plan's session, or what is asked of it anew; -1: the session is full.
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


cdef void _new_session(HotWorker* worker, FetchPlan* plan) noexcept nogil:
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
    _leave_session(worker, plan)
    session_close(worker.context.sessions, session_id)


cdef void _leave_session(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    if plan.session != NULL:
        unlock_ranked(&plan.session.lock, RANK_SESSION)
        session_release(worker.context.sessions, plan.session)
        plan.session = NULL


# --- read ----------------------------------------------------------------------------------------

cdef int16_t _check_epoch(Partition* partition, FetchTarget* target) noexcept nogil:
    cdef int32_t leader_epoch = kb_load_int(&partition.leader_epoch)
    if target.leader_epoch < 0 or target.leader_epoch == leader_epoch:
        return NO_ERROR
    if target.leader_epoch < leader_epoch:
        return FENCED_LEADER_EPOCH
    return UNKNOWN_LEADER_EPOCH


cdef int16_t _check_divergence(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    # Whether the client's last epoch went as far here as it did there (KIP-595).
    cdef int16_t error = partition_epoch_end(
        target.partition, target.fetched_epoch, plan.read_from, plan.patience,
        &target.diverging_epoch, &target.diverging_end)
    if error != NO_ERROR:
        return error
    if target.diverging_epoch < 0:
        return OFFSET_OUT_OF_RANGE
    target.diverges = (target.diverging_epoch < target.fetched_epoch
                       or target.diverging_end < target.fetch_offset)
    return NO_ERROR


cdef int16_t _note_follower(
    HotWorker* worker, FetchPlan* plan, FetchTarget* target
) noexcept nogil:
    cdef NotedFetch fetch
    cdef int16_t error
    fetch.broker_id = plan.replica_id
    fetch.broker_epoch = plan.replica_epoch
    fetch.leader_epoch = target.leader_epoch
    fetch.offset = target.fetch_offset
    fetch.log_start_offset = target.follower_start
    fetch.now_ns = kb_now_ns()
    error = partition_note_fetch(target.partition, &fetch)
    plan.any_error |= fetch.news == NEWS_AT_ONCE
    plan.has_news |= fetch.news == NEWS_SOON
    plan.out_of_sync |= not fetch.in_sync
    if fetch.moved:
        note_advanced(worker, target.partition)
    return error


cdef int _is_sent_elsewhere(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    # To a replica that is closer, and nothing is read here; or it would have to wait for that.
    cdef ReplicaOffsets offsets
    if target.error == NO_ERROR:
        target.error = partition_closest(
            target.partition, target.fetch_offset, &plan.place, plan.patience, &target.preferred,
            &offsets)
    if target.error != NO_ERROR or target.preferred == NO_PREFERRED_REPLICA:
        return 0
    plan.any_error = 1
    _note_offsets(target, &offsets)
    return 1


cdef void _note_offsets(FetchTarget* target, const ReplicaOffsets* offsets) noexcept nogil:
    target.log_start = offsets.log_start
    target.high_watermark = offsets.high_watermark
    target.last_stable = offsets.last_stable


cdef void _find_aborted(
    HotWorker* worker, FetchPlan* plan, FetchTarget* target, int64_t last_stable
) noexcept nogil:
    # An entry too many does no harm; one that is missing would bring aborted records to the reader.
    target.error = aborted_collect(
        target.partition.log, target.fetch_offset, &target.slice, last_stable, plan.patience,
        &worker.arena, &target.aborted, &target.aborted_count)
    if target.error != NO_ERROR:
        slice_release(&target.slice)
        target.slice.length = 0


cdef void _read_target(
    HotWorker* worker, FetchPlan* plan, FetchTarget* target, int64_t left
) noexcept nogil:
    cdef ReplicaOffsets offsets
    cdef int64_t most = target.max_bytes
    target.high_watermark = -1
    target.last_stable = -1
    target.log_start = -1
    if target.error == NO_ERROR:
        target.error = _check_epoch(target.partition, target)
    if plan.place.rack_length > 0 and _is_sent_elsewhere(plan, target):
        return
    if target.error == NO_ERROR and target.fetched_epoch >= 0:
        target.error = _check_divergence(plan, target)
        plan.any_error |= target.diverges
    if plan.notes_follower and target.error == NO_ERROR and not target.diverges:
        target.error = _note_follower(worker, plan, target)
    if target.error == NO_ERROR and not target.diverges:
        if plan.isolation == TO_LOG_END:
            target.held_back = leader_throttle_holds(
                &worker.context.leader_throttle, target.partition, plan.replica_id, kb_now_ns())
        most = 0 if target.held_back else max(min(most, left), 0)
        target.error = partition_read(
            target.partition, target.fetch_offset, most,
            plan.read_bytes == 0 and not target.held_back,
            plan.isolation, plan.read_from, plan.patience, &target.slice, &offsets)
        if plan.isolation == TO_LAST_STABLE and target.slice.length > 0:
            _find_aborted(worker, plan, target, offsets.last_stable)
    elif target.error == NO_ERROR and plan.patience == WAITS_FOR_NOTHING:
        target.error = READ_WOULD_WAIT  # to return the log's offsets: rare
    if target.error == READ_WOULD_WAIT:
        plan.slow = target.partition
        return
    if target.error != NO_ERROR:
        # A missing partition does not keep the fetch from waiting for the others, as in Apache
        # Kafka.
        plan.any_error |= _is_news(target)
        return
    if target.diverges:
        partition_offsets(target.partition, &target.log_start, NULL,
                          &target.high_watermark, &target.last_stable)
        return
    _note_offsets(target, &offsets)
    plan.read_bytes += target.slice.length


cdef int _is_news(FetchTarget* target) noexcept nogil:
    # That a topic was made again is answered at once, and after that as what is not there.
    if target.not_there:
        return target.made_again and target.entry.sent_error != target.error
    return 1


cdef void _read_all(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # In order; the first data may exceed the bounds by one whole batch, then they hold.
    cdef int32_t i
    plan.read_bytes = 0
    plan.any_error = plan.has_news = 0
    for i in range(plan.count):
        _read_target(worker, plan, &plan.targets[i], plan.max_bytes - plan.read_bytes)
        if plan.slow != NULL:
            return


# --- the run -------------------------------------------------------------------------------------

cdef int _is_due(FetchPlan* plan) noexcept nogil:
    return (
        plan.error != NO_ERROR
        or plan.any_error
        or plan.read_bytes >= plan.min_bytes
        or plan.max_wait_ms <= 0
        # Nothing of it is there; nor does a client who knows that ask without a pause.
        or (plan.count == plan.not_there_count > plan.known_count) or plan.count == 0
    )


cdef int _choose_targets(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # What the request names, or what its session follows; -1: no memory.
    if plan.incremental:
        return session_targets_locked(worker, plan)
    return fetch_unique(worker, plan) if plan.count > 1 else 0


cdef void _close_frame(HotWorker* worker, Request* request) noexcept nogil:
    request.action = ACTION_CLOSE
    worker_answer(worker, request)


cdef void _note_small_cold(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # What would be read into the answer, here and now.
    cdef FileSlice* slice
    cdef int32_t i
    for i in range(plan.count):
        slice = &plan.targets[i].slice
        if 0 < slice.length <= worker.context.inline_range_bytes and slice.cold:
            plan.slow = plan.targets[i].partition
            return


cdef int _is_a_handlers(FetchPlan* plan) noexcept nogil:
    # Much to read; a session to begin or to end, which may free a large one; a follower's, which
    # takes locks to be noted.
    return (
        plan.count > PARTITIONS_AT_ONCE_MAX
        or plan.replica_id >= 0
        or plan.session_epoch == INITIAL_EPOCH
        or (plan.session_epoch == FINAL_EPOCH and plan.session_id != 0)
    )


cdef void _give_back(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # To a handler. The session has noted this fetch already.
    fetch_drop_slices(plan)
    _leave_session(worker, plan)
    plan.request.taken_up = FETCH_TAKEN_UP
    worker.gives_back = 1


cdef void _ask_rights(HotWorker* worker, FetchPlan* plan, int resumed) noexcept nogil:
    # Of Python. One that has waited is queued first: its thread may not be a handler's.
    cdef Request* request = plan.request
    cdef Request* last = request
    cdef int is_queued = resumed == FETCH_LAST and request.rights == NULL
    if not worker.may & MAY_PARK:
        _give_back(worker, plan)
        return
    if fetch_keep_rights(worker, plan) != 0:
        _leave_session(worker, plan)
        _close_frame(worker, request)
        return
    _leave_session(worker, plan)
    request.taken_up = FETCH_LAST if resumed == FETCH_LAST else FETCH_TAKEN_UP
    if is_queued:
        request.waiting_ns = 0
        request_channel_push(worker.context.request_channel, request, &last, kb_now_ns())
    else:
        cold_push(worker, request, REASON_RIGHTS)


cdef int _is_set_aside(
    HotWorker* worker, Snapshot* snapshot, FetchPlan* plan, int resumed,
) noexcept nogil:
    # A run does not wait for the disk. The session has noted this fetch already.
    cdef Request* request = plan.request
    cdef int mode
    if plan.slow == NULL and not worker.may & MAY_WAIT_FOR_DISK:
        _note_small_cold(worker, plan)
    if plan.slow == NULL:
        return 0
    if not worker.may & MAY_PARK:
        _give_back(worker, plan)
        return 1
    fetch_drop_slices(plan)
    _leave_session(worker, plan)
    request.taken_up = FETCH_LAST if resumed == FETCH_LAST else FETCH_TAKEN_UP
    if not request_channel_set_aside(
        worker.context.request_channel, request, plan.slow, NULL, 1
    ):
        mode = worker_add_mode(worker, MODE_ASIDE)  # no room: this handler waits
        _fetch(worker, snapshot, request, request.taken_up)
        worker_set_mode(worker, mode)
    return 1


cdef void _fetch(
    HotWorker* worker, Snapshot* snapshot, Request* request, int resumed,
) noexcept nogil:
    # One append or deadline may complete many, and each may have taken 50 MB: nothing that a fetch
    # takes outlives it.
    cdef ArenaMark mark = arena_mark(&worker.arena)
    _serve(worker, snapshot, request, resumed)
    arena_back_to(&worker.arena, mark)


cdef Patience _patience(HotWorker* worker) noexcept nogil:
    if worker.may & MAY_WAIT_FOR_DISK:
        return WAITS_FOR_DISK
    return WAITS_FOR_LOCKS if worker.may & MAY_WAIT_FOR_LOCKS else WAITS_FOR_NOTHING


cdef void _serve(
    HotWorker* worker, Snapshot* snapshot, Request* request, int resumed,
) noexcept nogil:
    # `resumed`: FETCH_TAKEN_UP or FETCH_LAST, or 0: it is new.
    cdef FetchPlan* plan = <FetchPlan*>arena_take(&worker.arena, sizeof(FetchPlan))
    cdef int32_t ended = 0
    cdef int is_due
    cdef int waits
    if plan == NULL:
        _close_frame(worker, request)
        return
    plan.request = request
    if fetch_parse(worker, plan) != 0:
        _close_frame(worker, request)
        return
    if quotas_in_force(worker):
        fetch_keep_to_quota(worker, plan)
    if not worker.may & MAY_PARK and _is_a_handlers(plan):
        worker.gives_back = 1
        return
    _find_session(worker, plan, resumed)
    if worker.gives_back:
        return
    if not resumed:
        kb_count(&worker.fetch_requests, 1)
    if plan.error == NO_ERROR and _choose_targets(worker, plan) != 0:
        _leave_session(worker, plan)
        _close_frame(worker, request)
        return
    if plan.error == NO_ERROR:
        fetch_look_up(snapshot, plan)
        if plan.replica_id >= 0:
            fetch_refuse_stranger(worker, plan)
        if worker.context.verdicts != NULL and fetch_rights_are_unknown(worker, plan):
            _ask_rights(worker, plan, resumed)
            return
        plan.patience = _patience(worker)
        plan.notes_follower = plan.replica_id >= 0 and resumed != FETCH_LAST
        _read_all(worker, plan)
        if _is_set_aside(worker, snapshot, plan, resumed):
            return
        is_due = not fetch_gathers(worker, plan) and (resumed == FETCH_LAST or _is_due(plan))
        if not worker.may & MAY_PARK and (not is_due or plan.read_bytes > BYTES_AT_ONCE_MAX):
            _give_back(worker, plan)
            return
        fetch_count_reads(worker, plan)
        if not is_due:
            fetch_drop_slices(plan)
            asked_rights_drop(request)
            waits = fetch_wait(worker, &_FETCH, plan)
            _leave_session(worker, plan)
            if not waits:
                # From the start: the plan points into a frame that has been let go.
                _fetch(worker, snapshot, request, FETCH_LAST)
            return
    if quotas_in_force(worker) and fetch_is_over_quota(worker, plan):
        pass                      # a session that would be new is none, a known one stays
    elif plan.session_epoch == INITIAL_EPOCH and plan.version >= 7 and plan.error == NO_ERROR:
        _new_session(worker, plan)
    elif plan.incremental and plan.error == NO_ERROR and plan.count == 0:
        # Nothing is followed any more: the session ends, as Kafka's does.
        plan.answer_session_id = 0
        ended = plan.session_id
    elif plan.error == FETCH_SESSION_ID_NOT_FOUND and plan.session != NULL:
        ended = plan.session_id   # it has grown too large
    fetch_answer(worker, plan)
    _leave_session(worker, plan)
    if ended != 0:
        session_close(worker.context.sessions, ended)


cdef void fetch_run(HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil:
    """Every Fetch request of a run: answered or parked."""
    cdef Request* request = first
    cdef Request* following
    while request != NULL:
        following = request.next
        request.next = NULL
        _fetch(worker, snapshot, request, request.taken_up)
        request = following


cdef int fetch_at_once(HotWorker* worker, Snapshot* snapshot, Request* request) noexcept nogil:
    """A Fetch request on a Processor's thread: answered, or 0: it is a handler's."""
    worker.gives_back = 0
    _fetch(worker, snapshot, request, request.taken_up)
    return not worker.gives_back


cdef void _complete(
    HotWorker* worker, Snapshot* snapshot, ParkedRequest* parked
) noexcept nogil:
    # Answered with the records there are now.
    _fetch(worker, snapshot, parked.request, FETCH_LAST)
