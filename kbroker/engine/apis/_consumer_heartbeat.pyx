# cython: language_level=3
"""ConsumerGroupHeartbeat for a run, without the GIL, as far as a heartbeat changes nothing.

Python shows to C which members it would answer as before (`coordinator/group/_hot_beats`); here a
heartbeat is a look into that table and a time written into it, and Python's session timers read the
time when they fire. Every other request goes to Python whole (handlers/consumer_group_heartbeat.py,
the authority), in its place in the connection's order: one that joins, leaves or says anything new,
a member that is not published, or not with this epoch, client or instance id, a group that is not
ours or not loaded, a group's id that is not ASCII, bytes that do not parse, a client that is not
known to have the right.

Protocol: ConsumerGroupHeartbeatRequest 0-1 (a regular expression from 1; both are flexible).
Threads: the worker's own. Locks: a shard's, for one look.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.group._beats cimport AskedBeat, beat_peer, beat_renew_locked
from kbroker.coordinator.group._shards cimport (
    group_find_locked, group_shard_for, group_shard_lock)
from kbroker.coordinator.group._structs cimport GroupShard
from kbroker.coordinator.runtime._shards cimport (
    shard_is_slow, shard_late_from_ns, shard_unlock)
from kbroker.coordinator.runtime._structs cimport SHARD_ACTIVE, Shards
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
    put_i8,
    put_i16,
    put_i32,
    put_no_tags,
    put_string,
    skip_tags,
    take_header,
    take_i32,
    take_uvarint,
)
from kbroker.engine.worker._answers cimport cold_push
from kbroker.engine.worker._asked_rights cimport client_may
from kbroker.engine.worker._charges cimport worker_answer_charged
from kbroker.engine.worker._context cimport REASON_GROUP, HotWorker
from kbroker.engine.worker._verdicts cimport OPERATION_READ, RESOURCE_GROUP
from kbroker.engine.apis._group_member cimport is_ascii, take_text
from kbroker.engine.worker._worker_mode cimport MAY_WAIT_FOR_DISK

cdef enum:
    FLEXIBLE = 1
    FOR_PYTHON = -1
    SET_ASIDE = -2

    EXPRESSION_FROM = 1
    NO_TIMEOUT = -1
    NO_STRUCT = -1
    # Of an answer but for the member's id, whose length has 5 bytes at most.
    ANSWER_BYTES = 4 + 4 + 1 + 4 + 2 + 1 + 5 + 4 + 4 + 1 + 1


cdef int _says_nothing_new(Cursor* cursor, int version) noexcept nogil:
    # What follows the instance id: all of it null, which is "as before".
    cdef uint32_t named
    named = take_uvarint(cursor)                   # a rack
    if take_i32(cursor) != NO_TIMEOUT:
        return 0
    named |= take_uvarint(cursor)                  # names of topics
    if version >= EXPRESSION_FROM:
        named |= take_uvarint(cursor)
    named |= take_uvarint(cursor)                  # an assignor
    named |= take_uvarint(cursor)                  # partitions
    if named != 0:
        return 0
    skip_tags(cursor, FLEXIBLE)
    return not cursor.failed


cdef int32_t _interval(
    HotWorker* worker, Request* request, const AskedBeat* asked, int64_t now_ms,
) noexcept nogil:
    # To answer with, or FOR_PYTHON; or it is another handler's, which waits for the shard.
    cdef Shards* shards = worker.context.groups
    cdef GroupShard* shard = group_shard_for(shards, asked.group.at, asked.group.length)
    cdef int32_t interval_ms = FOR_PYTHON
    cdef int slow
    if shard == NULL:
        return FOR_PYTHON
    slow = 0 if worker.may & MAY_WAIT_FOR_DISK else shard_is_slow(&shard.base)
    if slow and request_channel_set_aside(
        worker.context.request_channel, request, shard, shard_late_from_ns(&shard.base),
        slow == WRITE_HANGS,
    ):
        return SET_ASIDE
    group_shard_lock(shard)
    if kb_load_int(&shard.base.state) == SHARD_ACTIVE:
        interval_ms = beat_renew_locked(
            group_find_locked(shard, asked.group.at, asked.group.length), asked,
            kb_load_i64(&shards.images_shown), now_ms)
    shard_unlock(&shard.base)
    return interval_ms


cdef int _answer(
    HotWorker* worker, Request* request, int32_t correlation_id, const AskedBeat* asked,
    int32_t interval_ms,
) noexcept nogil:
    # -1: no memory.
    cdef uint8_t* head = answer_reserve(
        request, <uint32_t>(ANSWER_BYTES + asked.member.length), 1)
    cdef uint8_t* at
    if head == NULL:
        return -1
    at = put_i32(head + 4, correlation_id)
    at = put_no_tags(at, FLEXIBLE)
    at = put_i32(at, 0)                            # throttle time
    at = put_i16(at, 0)                            # error
    at = put_string(at, FLEXIBLE, NULL, -1)        # its message
    at = put_string(at, FLEXIBLE, asked.member.at, asked.member.length)
    at = put_i32(at, asked.epoch)
    at = put_i32(at, interval_ms)
    at = put_i8(at, NO_STRUCT)                     # assignment: as before
    at = put_no_tags(at, FLEXIBLE)
    kb_put_u32(head, <uint32_t>(at - head - 4))
    answer_bytes(request, head, at - head)
    request.action = ACTION_SEND
    kb_count(&worker.consumer_heartbeat_requests, 1)
    worker_answer_charged(worker, request)
    return 0


cdef void _heartbeat(HotWorker* worker, Request* request, int64_t now_ms) noexcept nogil:
    cdef AskedBeat asked
    cdef Cursor cursor
    cdef RequestHeader header
    cdef int32_t interval_ms = FOR_PYTHON
    take_header(&cursor, &header, request.data, request.length_bytes, FLEXIBLE)
    take_text(&cursor, FLEXIBLE, &asked.group)
    take_text(&cursor, FLEXIBLE, &asked.member)
    asked.epoch = take_i32(&cursor)
    take_text(&cursor, FLEXIBLE, &asked.instance)
    if (
        _says_nothing_new(&cursor, request.api_version) and worker.context.groups != NULL
        and asked.epoch > 0 and asked.group.length > 0 and asked.member.length > 0
        and is_ascii(&asked.group)
        and client_may(worker.context, request, OPERATION_READ, RESOURCE_GROUP, asked.group.at,
                       asked.group.length)
    ):
        asked.peer = beat_peer(
            header.client_id, header.client_id_length, request.channel.peer_address,
            request.channel.is_ipv6)
        interval_ms = _interval(worker, request, &asked, now_ms)
    if interval_ms == SET_ASIDE:
        return
    if (
        interval_ms == FOR_PYTHON
        or _answer(worker, request, header.correlation_id, &asked, interval_ms) != 0
    ):
        cold_push(worker, request, REASON_GROUP)


cdef void consumer_heartbeat_run(HotWorker* worker, Request* first) noexcept nogil:
    """Every ConsumerGroupHeartbeat of a run, in order; those for Python go to the worker's cold
    list."""
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
