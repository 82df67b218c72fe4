# cython: language_level=3
"""A Fetch request's bytes into a plan: FetchRequest 4-18, bounded by the rest of the frame.

Every count is compared with the bytes after it before memory is taken, which is the arena's; names
and ids stay in the frame. Nothing is looked up here. No GIL, no locks.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.core._arena cimport arena_take
from kbroker.core._atomics cimport kb_load_ptr
from kbroker.core._error_codes cimport UNKNOWN_SERVER_ERROR
from kbroker.core._limits cimport REQUEST_PARTITIONS_MAX
from kbroker.net._types cimport Request
from kbroker.protocol._cursor cimport (
    Cursor,
    RequestHeader,
    skip_tags,
    take,
    take_count,
    take_header,
    take_i32,
    take_i64,
    take_i8,
    take_string,
    take_tag_count,
    take_uvarint,
)
from kbroker.protocol._versions cimport FETCH_FLEXIBLE_SINCE
from kbroker.replica._closest cimport NO_PREFERRED_REPLICA
from kbroker.replica._metadata_view cimport MetadataView
from kbroker.replica._partition cimport (
    FROM_ANY_REPLICA,
    FROM_LEADER,
    TO_HIGH_WATERMARK,
    TO_LAST_STABLE,
    TO_LOG_END,
)
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport (
    ANY_REPLICA_FROM,
    FINAL_EPOCH,
    TOPIC_IDS_FROM,
    FetchPlan,
    FetchTarget,
)

cdef enum:
    REPLICA_STATE_FROM = 15
    REPLICA_STATE_TAG = 1
    TOPIC_BYTES_MIN = 6           # an empty name, a count
    TOPIC_BYTES_MIN_FLEXIBLE = 3  # and no tags
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


cdef void _parse_target(Cursor* cursor, FetchPlan* plan, FetchTarget* target) noexcept nogil:
    target.index = take_i32(cursor)
    target.leader_epoch = -1
    if plan.version >= 9:
        target.leader_epoch = take_i32(cursor)
    target.fetch_offset = take_i64(cursor)
    target.fetched_epoch = -1
    if plan.version >= 12:
        target.fetched_epoch = take_i32(cursor)
    target.follower_start = -1
    if plan.version >= 5:
        target.follower_start = take_i64(cursor)
    target.max_bytes = take_i32(cursor)
    target.preferred = NO_PREFERRED_REPLICA
    skip_tags(cursor, plan.flexible)


cdef int32_t _parse_topics(
    HotWorker* worker, Cursor* cursor, FetchPlan* plan, FetchTarget** targets, int forgotten,
) noexcept nogil:
    # Topics of partitions, flattened; `forgotten` ones are bare indexes.
    cdef int32_t topics = take_count(
        cursor, plan.flexible,
        TOPIC_BYTES_MIN_FLEXIBLE if plan.flexible else TOPIC_BYTES_MIN)
    cdef int32_t partitions
    cdef int32_t total = 0
    cdef int64_t room = 0
    cdef int32_t i
    cdef int32_t _topic
    cdef int32_t _each
    cdef FetchTarget* target
    cdef FetchTarget* fresh
    cdef uint8_t* topic_id
    cdef uint8_t* name
    cdef int64_t name_length
    targets[0] = NULL
    for _topic in range(topics):
        topic_id = NULL
        name = NULL
        name_length = 0
        if plan.version >= TOPIC_IDS_FROM:
            topic_id = take(cursor, 16)
        else:
            name = take_string(cursor, plan.flexible, &name_length)
            if name == NULL:
                cursor.failed = 1
        partitions = take_count(cursor, plan.flexible, 4 if forgotten else 16)
        if <int64_t>total + partitions > REQUEST_PARTITIONS_MAX:
            cursor.failed = 1
        if cursor.failed:
            return 0
        if <int64_t>total + partitions > room or targets[0] == NULL:
            # Doubled: many topics of few partitions must not cost the square of their number.
            room = max(2 * room, <int64_t>total + partitions)
            fresh = <FetchTarget*>arena_take(&worker.arena, sizeof(FetchTarget) * <size_t>room)
            if fresh == NULL:
                cursor.failed = 1
                return 0
            for i in range(total):
                fresh[i] = targets[0][i]
            targets[0] = fresh
        for _each in range(partitions):
            target = &targets[0][total]
            target.topic_id = topic_id
            target.name = name
            target.name_length = <int32_t>name_length
            if forgotten:
                target.index = take_i32(cursor)
            else:
                _parse_target(cursor, plan, target)
            total += 1
        skip_tags(cursor, plan.flexible)
        if cursor.failed:
            return 0
    return total


cdef void _parse_tags(Cursor* cursor, FetchPlan* plan) noexcept nogil:
    # The request's tagged fields: replica_state carries the replica id from version 15.
    cdef uint32_t count = take_tag_count(cursor)
    cdef uint32_t tag
    cdef uint32_t size
    cdef Cursor field
    while count > 0 and not cursor.failed:
        count -= 1
        tag = take_uvarint(cursor)
        size = take_uvarint(cursor)
        field.at = take(cursor, size)
        field.left = size
        field.failed = 0
        if tag == REPLICA_STATE_TAG and plan.version >= REPLICA_STATE_FROM and not cursor.failed:
            plan.replica_id = take_i32(&field)
            plan.replica_epoch = take_i64(&field)
            cursor.failed |= field.failed


cdef void _refuse_isolation_level(FetchPlan* plan) noexcept nogil:
    # As Kafka: the whole answer, and each partition in the versions that name topics.
    cdef FetchTarget* target
    cdef int32_t i
    plan.error = UNKNOWN_SERVER_ERROR
    if plan.version >= TOPIC_IDS_FROM:
        return
    for i in range(plan.count):
        target = &plan.targets[i]
        target.error = UNKNOWN_SERVER_ERROR
        target.not_there = 1
        target.high_watermark = -1
        target.last_stable = -1
        target.log_start = -1


cdef void _place_reader(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # A client that may read from followers is sent to one only where replicas are chosen by rack.
    if not worker.context.rack_aware or plan.read_from == FROM_LEADER or plan.place.rack == NULL:
        plan.place.rack_length = 0
        return
    plan.place.listener = plan.request.channel.listener
    plan.place.view = <MetadataView*>kb_load_ptr(<void**>worker.context.published)


cdef int fetch_parse(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    """Fills the plan from its request; -1: the frame does not parse."""
    cdef Request* request = plan.request
    cdef Cursor cursor
    cdef RequestHeader header
    cdef int isolation_level
    plan.version = request.api_version
    plan.flexible = plan.version >= FETCH_FLEXIBLE_SINCE
    take_header(&cursor, &header, request.data, request.length_bytes, plan.flexible)
    plan.replica_id = -1
    plan.replica_epoch = -1
    plan.isolation = TO_HIGH_WATERMARK
    if plan.version < REPLICA_STATE_FROM:
        plan.replica_id = take_i32(&cursor)
    plan.max_wait_ms = take_i32(&cursor)
    plan.min_bytes = take_i32(&cursor)
    plan.max_bytes = take_i32(&cursor)
    isolation_level = take_i8(&cursor)
    plan.session_epoch = FINAL_EPOCH
    if plan.version >= 7:
        plan.session_id = take_i32(&cursor)
        plan.session_epoch = take_i32(&cursor)
    plan.count = _parse_topics(worker, &cursor, plan, &plan.targets, 0)
    if plan.version >= 7:
        plan.forgotten_count = _parse_topics(worker, &cursor, plan, &plan.forgotten, 1)
    if plan.version >= ANY_REPLICA_FROM:
        plan.place.rack = take_string(&cursor, plan.flexible, &plan.place.rack_length)
    if plan.flexible:
        _parse_tags(&cursor, plan)
    if plan.max_bytes > worker.context.fetch_bytes_max:
        plan.max_bytes = worker.context.fetch_bytes_max
    if plan.min_bytes > plan.max_bytes:
        plan.min_bytes = plan.max_bytes  # more will never be in one answer
    if plan.replica_id >= 0:
        plan.isolation = TO_LOG_END
        request.from_follower = 1
    elif isolation_level == READ_COMMITTED:
        plan.isolation = TO_LAST_STABLE
    elif isolation_level != READ_UNCOMMITTED:
        _refuse_isolation_level(plan)
    if plan.version >= ANY_REPLICA_FROM and plan.replica_id < 0:
        plan.read_from = FROM_ANY_REPLICA
    _place_reader(worker, plan)
    return -1 if cursor.failed else 0
