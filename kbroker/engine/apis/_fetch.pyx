# cython: language_level=3
"""Fetch without the GIL: find the session, read, answer or park.

One read before waiting and one at completion: a fetch that found enough bytes, an error, or may not
wait is answered at once; any other is parked on its partitions and comes back through `_complete`,
which reads the request again from the copy it kept and answers with the records there are.

Sessions (KIP-227) are C (`_fetch_session_step`), and so are the reads (`_fetch_read`).

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

from libc.stdint cimport int32_t

from kbroker.core._arena cimport ArenaMark, arena_back_to, arena_mark, arena_take
from kbroker.core._error_codes cimport FETCH_SESSION_ID_NOT_FOUND, NO_ERROR
from kbroker.core._figures cimport kb_count
from kbroker.core._sync cimport kb_now_ns
from kbroker.engine.apis._fetch_answer cimport (
    fetch_answer,
    fetch_count_reads,
    fetch_drop_slices,
)
from kbroker.engine.apis._fetch_charge cimport fetch_is_over_quota, fetch_keep_to_quota
from kbroker.engine.apis._fetch_gathers cimport fetch_gathers
from kbroker.engine.apis._fetch_look_up cimport fetch_look_up
from kbroker.engine.apis._fetch_plan cimport (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PARTITIONS_AT_ONCE_MAX,
    FetchPlan,
)
from kbroker.engine.apis._fetch_read cimport fetch_read_all
from kbroker.engine.apis._fetch_request cimport fetch_parse
from kbroker.engine.apis._fetch_rights cimport (
    fetch_keep_rights, fetch_refuse_stranger, fetch_rights_are_unknown)
from kbroker.engine.apis._fetch_session_step cimport (
    fetch_find_session,
    fetch_leave_session,
    fetch_names_session,
    fetch_new_session,
)
from kbroker.engine.apis._fetch_session_targets cimport session_targets_locked
from kbroker.engine.apis._fetch_unique cimport fetch_unique
from kbroker.engine.apis._fetch_wait cimport fetch_wait
from kbroker.engine.worker._answers cimport cold_push, worker_answer
from kbroker.engine.worker._asked_rights cimport asked_rights_drop
from kbroker.engine.worker._charges cimport quotas_in_force
from kbroker.engine.worker._context cimport (
    REASON_RIGHTS, WAITS_FOR_BYTES, HotWorker, ParkedRequest, WaiterKind)
from kbroker.engine.worker._worker_mode cimport (
    MAY_PARK,
    MAY_WAIT_FOR_DISK,
    MAY_WAIT_FOR_LOCKS,
    MODE_ASIDE,
    worker_add_mode,
    worker_set_mode,
)
from kbroker.log.engine._types cimport (
    WAITS_FOR_DISK,
    WAITS_FOR_LOCKS,
    WAITS_FOR_NOTHING,
    FileSlice,
    Patience,
)
from kbroker.net._request_channel cimport request_channel_push, request_channel_set_aside
from kbroker.net._types cimport ACTION_CLOSE, Request
from kbroker.replica._fetch_session cimport session_close
from kbroker.replica._snapshot cimport Snapshot

cdef enum:
    FETCH_TAKEN_UP = 1            # its session's step is done; it may yet be parked
    FETCH_LAST = 2                # it waited: answered with the records there are

    BYTES_AT_ONCE_MAX = 256 * 1024  # more keep the others of a Processor waiting


cdef WaiterKind _FETCH = WaiterKind(
    waits_for=WAITS_FOR_BYTES, complete=_complete, give_up=NULL, free_kept=NULL)


cdef int _is_due(HotWorker* worker, FetchPlan* plan, int resumed) noexcept nogil:
    if plan.notes_follower and fetch_gathers(worker, plan):
        return 0
    return (
        resumed == FETCH_LAST
        or plan.error != NO_ERROR
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
    fetch_leave_session(worker, plan)
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
        fetch_leave_session(worker, plan)
        _close_frame(worker, request)
        return
    fetch_leave_session(worker, plan)
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
    fetch_leave_session(worker, plan)
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
    if fetch_names_session(plan):
        fetch_find_session(worker, plan, resumed)
        if worker.gives_back:
            return
    if not resumed:
        kb_count(&worker.fetch_requests, 1)
    if plan.error == NO_ERROR and _choose_targets(worker, plan) != 0:
        fetch_leave_session(worker, plan)
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
        fetch_read_all(worker, plan)
        if _is_set_aside(worker, snapshot, plan, resumed):
            return
        is_due = _is_due(worker, plan, resumed)
        if not worker.may & MAY_PARK and (not is_due or plan.read_bytes > BYTES_AT_ONCE_MAX):
            _give_back(worker, plan)
            return
        fetch_count_reads(worker, plan)
        if not is_due:
            fetch_drop_slices(plan)
            asked_rights_drop(request)
            waits = fetch_wait(worker, &_FETCH, plan)
            fetch_leave_session(worker, plan)
            if not waits:
                # From the start: the plan points into a frame that has been let go.
                _fetch(worker, snapshot, request, FETCH_LAST)
            return
    if quotas_in_force(worker) and fetch_is_over_quota(worker, plan):
        pass                      # a session that would be new is none, a known one stays
    elif plan.session_epoch == INITIAL_EPOCH and plan.version >= 7 and plan.error == NO_ERROR:
        fetch_new_session(worker, plan)
    elif plan.incremental and plan.error == NO_ERROR and plan.count == 0:
        # Nothing is followed any more: the session ends, as Kafka's does.
        plan.answer_session_id = 0
        ended = plan.session_id
    elif plan.error == FETCH_SESSION_ID_NOT_FOUND and plan.session != NULL:
        ended = plan.session_id   # it has grown too large
    fetch_answer(worker, plan)
    fetch_leave_session(worker, plan)
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
