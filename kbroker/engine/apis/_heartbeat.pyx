# cython: language_level=3
"""Heartbeat for a run, without the GIL: notes the time for a known member and answers its state.

Python publishes the members to C (`HotView.publish_members`); here a heartbeat is a look into that
table and a time written into it, and Python's session timers read the time when they fire. A
request that is not plainly right goes to Python whole (handlers/heartbeat.py, the authority), in
its place in the connection's order: an unknown group or member, another generation, another
instance id, a group that is not ours or not loaded, ids that are not ASCII, bytes that do not
parse, a client that is not known to have the right.

Protocol: HeartbeatRequest 0-4 (throttle time from 1, instance ids from 3, flexible from 4).
Threads: the worker's own. Locks: a shard's, for one look.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.group._shards cimport (
    group_find_locked, group_shard_for, group_shard_lock)
from kbroker.coordinator.group._state_rows cimport HEARTBEAT_FOR_PYTHON
from kbroker.coordinator.group._structs cimport Group, GroupShard, Member
from kbroker.coordinator.runtime._shards cimport (
    shard_is_slow, shard_late_from_ns, shard_unlock)
from kbroker.coordinator.runtime._structs cimport SHARD_ACTIVE
from kbroker.core._atomics cimport kb_load_i64, kb_load_int
from kbroker.core._figures cimport kb_count
from kbroker.core._sync cimport kb_now_ns
from kbroker.log.engine._storage cimport WRITE_HANGS
from kbroker.net._request cimport answer_bytes, answer_reserve
from kbroker.net._request_channel cimport request_channel_set_aside
from kbroker.net._types cimport ACTION_SEND, Request
from kbroker.protocol._cursor cimport (
    Cursor,
    RequestHeader,
    kb_put_u32,
    put_i16,
    put_i32,
    put_no_tags,
    skip_tags,
    take_header,
)
from kbroker.protocol._versions cimport HEARTBEAT_FLEXIBLE_SINCE
from kbroker.engine.worker._answers cimport cold_push
from kbroker.engine.worker._asked_rights cimport client_may
from kbroker.engine.worker._charges cimport worker_answer_charged
from kbroker.engine.worker._context cimport REASON_GROUP, HotWorker
from kbroker.engine.worker._verdicts cimport OPERATION_READ, RESOURCE_GROUP
from kbroker.engine.apis._group_member cimport (
    AskingMember,
    asking_member_locked,
    is_ascii,
    take_asking_member,
)
from kbroker.engine.worker._worker_mode cimport MAY_WAIT_FOR_DISK

cdef enum:
    UNDECIDED = HEARTBEAT_FOR_PYTHON
    SET_ASIDE = -2

    THROTTLE_FROM = 1
    INSTANCE_FROM = 3
    ANSWER_BYTES = 4 + 4 + 1 + 4 + 2 + 1


cdef int _verdict(
    HotWorker* worker, Request* request, AskingMember* asking, int64_t now_ms,
) noexcept nogil:
    # The error to answer, or UNDECIDED; or it is another handler's, which waits for the shard.
    cdef GroupShard* shard = group_shard_for(
        worker.context.groups, asking.group.at, asking.group.length)
    cdef Group* group
    cdef Member* member
    cdef int error = UNDECIDED
    cdef int slow
    if shard == NULL:
        return UNDECIDED
    slow = 0 if worker.may & MAY_WAIT_FOR_DISK else shard_is_slow(&shard.base)
    if slow and request_channel_set_aside(
        worker.context.request_channel, request, shard, shard_late_from_ns(&shard.base),
        slow == WRITE_HANGS,
    ):
        return SET_ASIDE
    group_shard_lock(shard)
    if kb_load_int(&shard.base.state) == SHARD_ACTIVE:
        group = group_find_locked(shard, asking.group.at, asking.group.length)
        member = asking_member_locked(group, asking)
        if member != NULL:
            error = group.heartbeat_error
            if error != UNDECIDED:
                member.heard_ms = now_ms
    shard_unlock(&shard.base)
    return error


cdef void _answer(
    HotWorker* worker, Request* request, int32_t correlation_id, int error,
) noexcept nogil:
    # Fits into the request's own bytes, so there is always room.
    cdef int version = request.api_version
    cdef int flexible = version >= HEARTBEAT_FLEXIBLE_SINCE
    cdef uint8_t* head = answer_reserve(request, ANSWER_BYTES, 1)
    cdef uint8_t* at = put_i32(head + 4, correlation_id)
    at = put_no_tags(at, flexible)
    if version >= THROTTLE_FROM:
        at = put_i32(at, 0)
    at = put_i16(at, <short>error)
    at = put_no_tags(at, flexible)
    kb_put_u32(head, <uint32_t>(at - head - 4))
    answer_bytes(request, head, at - head)
    request.action = ACTION_SEND
    kb_count(&worker.heartbeat_requests, 1)
    worker_answer_charged(worker, request)


cdef void _heartbeat(HotWorker* worker, Request* request, int64_t now_ms) noexcept nogil:
    cdef int version = request.api_version
    cdef AskingMember asking
    cdef Cursor cursor
    cdef RequestHeader header
    cdef int error = UNDECIDED
    take_header(
        &cursor, &header, request.data, request.length_bytes, version >= HEARTBEAT_FLEXIBLE_SINCE)
    take_asking_member(
        &cursor, &asking, version >= HEARTBEAT_FLEXIBLE_SINCE, version >= INSTANCE_FROM)
    skip_tags(&cursor, version >= HEARTBEAT_FLEXIBLE_SINCE)
    if (
        not cursor.failed and is_ascii(&asking.group) and worker.context.groups != NULL
        and client_may(worker.context, request, OPERATION_READ, RESOURCE_GROUP, asking.group.at,
                       asking.group.length)
    ):
        error = _verdict(worker, request, &asking, now_ms)
    if error == UNDECIDED:
        cold_push(worker, request, REASON_GROUP)
    elif error != SET_ASIDE:
        _answer(worker, request, header.correlation_id, error)


cdef void heartbeat_run(HotWorker* worker, Request* first) noexcept nogil:
    """Every Heartbeat of a run, in order; those for Python go to the worker's cold list."""
    cdef Request* request = first
    cdef Request* following
    cdef int64_t now_ms = kb_now_ns() // 1000000
    if worker.context.groups != NULL:
        now_ms += kb_load_i64(&worker.context.groups.clock_shift_ms)
    while request != NULL:
        following = request.next
        request.next = NULL
        _heartbeat(worker, request, now_ms)
        request = following
