# cython: language_level=3
"""Produce for a whole run, without the GIL: plan every request, append per partition, answer.

Plan has no effect: it parses the frames, looks partitions up, validates every batch. A request of
which any batch needs Python goes there whole, before anything of it is written. Commit cannot fall
back: all batches of the run that go to one partition become one group append, in the order in which
they came. Answers are built last, from the plan.

A train is one request of several frames; its answers leave as one piece of memory. A frame that
does not parse closes the connection after the answers of the frames before it. acks=0 has no
answer; an error in it closes the connection, which is all a client can be told.

Protocol: ProduceRequest and ProduceResponse 3-13 (KIP-467 record errors from 8, flexible from 9,
topic ids from 13). Threads: the worker's own; locks only inside partition_append.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, strlen

from kbroker._arena cimport arena_take
from kbroker._atomics cimport kb_load_int
from kbroker._sync cimport kb_wall_ms
from kbroker.handlers._answers cimport (
    cold_push,
    worker_answer,
    worker_flush,
    worker_give_up_role,
)
from kbroker.handlers._context cimport (
    REASON_DECOMPRESS,
    REASON_NONE,
    REASON_RECOMPRESS,
    HotWorker,
)
from kbroker.handlers._parked cimport parked_wake_touched
from kbroker.log._partition cimport (
    NEEDS_PYTHON,
    Batch,
    Partition,
    partition_append,
    partition_validate,
)
from kbroker.net._request cimport answer_bytes, answer_reserve
from kbroker.net._types cimport ACTION_CLOSE, ACTION_NO_OP, ACTION_SEND, Request
from kbroker.protocol._cursor cimport (
    Cursor,
    put_count,
    put_i16,
    put_i32,
    put_i64,
    put_no_tags,
    put_raw,
    put_string,
    skip_tags,
    take,
    take_bytes,
    take_count,
    take_i16,
    take_i32,
    take_string,
)
from kbroker.replica._snapshot cimport (
    Snapshot,
    TopicEntry,
    snapshot_by_id,
    snapshot_by_name,
)

cdef extern from "bytes.h" nogil:
    uint32_t kb_get_u32(const uint8_t* at)
    void kb_put_u32(uint8_t* at, uint32_t value)

cdef enum:
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    INVALID_RECORD = 87
    UNKNOWN_TOPIC_ID = 100

    FLEXIBLE_FROM = 9
    TOPIC_IDS_FROM = 13
    RECORD_ERRORS_FROM = 8
    LOG_START_FROM = 5
    GROUPS_MIN = 64
    PARTITIONS_MAX = 100000       # of one request: memory is reserved for what it names
    UNPACK_STEP_BYTES = 64 << 10  # compressed; a batch may unpack to 256 times its size
    ANSWER_BYTES_MAX = 0x7fffffff  # what a frame's size can say; a request for more is hostile

cdef const char* ADMIN_CLIENT = b"__admin_client"


# One partition's share of a run.
cdef struct Group:
    Partition* partition
    Batch* first
    Batch* last


# --- plan ----------------------------------------------------------------------------------------

cdef ProducePlan* produce_plan(
    HotWorker* worker, Snapshot* snapshot, Request* request,
) noexcept nogil:
    """The request's frames parsed, looked up and validated; NULL: no memory."""
    cdef ProducePlan* plan = <ProducePlan*>arena_take(&worker.arena, sizeof(ProducePlan))
    cdef ProduceFrame** place
    cdef ProduceFrame* frame
    cdef uint8_t* data = request.data
    cdef uint32_t length = request.length_bytes
    cdef int number
    if plan == NULL:
        return NULL
    plan.request = request
    place = &plan.frames
    for number in range(request.frames):
        frame = <ProduceFrame*>arena_take(&worker.arena, sizeof(ProduceFrame))
        if frame == NULL:
            return NULL
        place[0] = frame
        place = &frame.next
        _parse_frame(worker, snapshot, plan, frame, data, length)
        if frame.malformed:
            break
        data += length
        if number + 1 < request.frames:
            length = kb_get_u32(data)
            data += 4
    return plan


cdef void _parse_frame(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plan, ProduceFrame* frame,
    uint8_t* data, uint32_t length,
) noexcept nogil:
    cdef Cursor cursor
    cdef int version = plan.request.api_version
    cdef int flexible = version >= FLEXIBLE_FROM
    cdef int64_t client_length
    cdef int64_t transactional_length
    cdef uint8_t* client
    cdef int admin
    cdef int32_t number
    cursor.at = data
    cursor.left = length
    cursor.failed = 0
    take(&cursor, 4)
    frame.correlation_id = take_i32(&cursor)
    client = take_string(&cursor, 0, &client_length)
    skip_tags(&cursor, flexible)
    take_string(&cursor, flexible, &transactional_length)
    frame.acks = take_i16(&cursor)
    take_i32(&cursor)             # timeout_ms: one replica never waits
    frame.topic_count = take_count(&cursor, flexible, 3)
    if cursor.failed or frame.topic_count > PARTITIONS_MAX:
        frame.malformed = 1
        return
    frame.topics = <ProduceTopic*>arena_take(
        &worker.arena, sizeof(ProduceTopic) * <size_t>(frame.topic_count + 1))
    if frame.topics == NULL:
        frame.topic_count = 0
        frame.malformed = 1
        return
    admin = client != NULL and client_length == 14 and memcmp(client, ADMIN_CLIENT, 14) == 0
    for number in range(frame.topic_count):
        _parse_topic(worker, snapshot, plan, frame, &frame.topics[number], &cursor, admin)
        if cursor.failed:
            frame.malformed = 1
            return
    skip_tags(&cursor, flexible)
    frame.malformed = cursor.failed


cdef void _parse_topic(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plan, ProduceFrame* frame,
    ProduceTopic* topic, Cursor* cursor, int admin,
) noexcept nogil:
    cdef int version = plan.request.api_version
    cdef int flexible = version >= FLEXIBLE_FROM
    cdef TopicEntry* entry = NULL
    cdef ProducePartition* place
    cdef int64_t length
    cdef int16_t error
    cdef int32_t number
    if version >= TOPIC_IDS_FROM:
        topic.topic_id = take(cursor, 16)
        error = UNKNOWN_TOPIC_ID
    else:
        topic.name = take_string(cursor, flexible, &length)
        topic.name_length = <int32_t>length
        error = UNKNOWN_TOPIC_OR_PARTITION
        if topic.name == NULL:
            cursor.failed = 1
    topic.partition_count = take_count(cursor, flexible, 6)
    if plan.batch_count + topic.partition_count > PARTITIONS_MAX:
        cursor.failed = 1
    if cursor.failed:
        return
    if version >= TOPIC_IDS_FROM:
        entry = snapshot_by_id(snapshot, topic.topic_id)
    else:
        entry = snapshot_by_name(snapshot, topic.name, topic.name_length)
    topic.partitions = <ProducePartition*>arena_take(
        &worker.arena, sizeof(ProducePartition) * <size_t>(topic.partition_count + 1))
    if topic.partitions == NULL:
        topic.partition_count = 0
        cursor.failed = 1
        return
    if frame.acks < -1 or frame.acks > 1:
        error = INVALID_REQUIRED_ACKS
    elif entry != NULL:
        error = INVALID_TOPIC_EXCEPTION if entry.internal and not admin else 0
    for number in range(topic.partition_count):
        place = &topic.partitions[number]
        place.index = take_i32(cursor)
        place.batch.data = take_bytes(cursor, flexible, &length)
        place.batch.length_bytes = <uint32_t>(length if length > 0 else 0)
        skip_tags(cursor, flexible)
        if cursor.failed:
            return
        _plan_batch(plan, frame, place, entry, error)
    skip_tags(cursor, flexible)


cdef void _plan_batch(
    ProducePlan* plan, ProduceFrame* frame, ProducePartition* place, TopicEntry* entry,
    int16_t error,
) noexcept nogil:
    cdef Batch* batch = &place.batch
    batch.acks = <signed char>frame.acks
    batch.api_version = <signed char>plan.request.api_version
    batch.error_record = -1
    batch.base_offset = -1
    batch.append_time_ms = -1
    batch.log_start_offset = -1
    plan.batch_count += 1
    if error == 0 and (place.index < 0 or place.index >= entry.partition_count):
        error = UNKNOWN_TOPIC_OR_PARTITION
    if error == 0 and entry.partitions[place.index] == NULL:
        error = UNKNOWN_TOPIC_OR_PARTITION
    if error == 0 and batch.length_bytes == 0:
        error = INVALID_RECORD
        batch.error_message = b"a produce request must have one record batch per partition"
    batch.error = error
    if error == 0:
        place.partition = entry.partitions[place.index]
        if place.partition.recompress:
            plan.reason = REASON_RECOMPRESS


cdef void produce_validate(ProducePlan* plan) noexcept nogil:
    """CRC and every record, outside every lock. The first batch that needs Python ends it."""
    cdef int64_t now_ms = kb_wall_ms()
    cdef ProduceFrame* frame = plan.frames
    cdef Batch* batch
    cdef int32_t topic
    cdef int32_t number
    while frame != NULL and not frame.malformed:
        for topic in range(frame.topic_count):
            for number in range(frame.topics[topic].partition_count):
                batch = &frame.topics[topic].partitions[number].batch
                if batch.error != 0:
                    continue
                if partition_validate(
                    frame.topics[topic].partitions[number].partition, batch, now_ms
                ) == NEEDS_PYTHON:
                    plan.reason = REASON_DECOMPRESS
                    return
                if batch.codec != 0:
                    plan.compressed_bytes += batch.length_bytes
        frame = frame.next


# --- commit --------------------------------------------------------------------------------------

cdef Group* _group_of(Group* groups, uint32_t mask, Partition* partition) noexcept nogil:
    # Open addressing by the partition's address.
    cdef uint32_t place = <uint32_t>((<size_t>partition >> 6) * 2654435761u) & mask
    while groups[place].partition != NULL and groups[place].partition != partition:
        place = (place + 1) & mask
    return &groups[place]


cdef void _gather(Group* groups, uint32_t mask, ProducePlan* plan) noexcept nogil:
    cdef ProduceFrame* frame = plan.frames
    cdef ProducePartition* place
    cdef Group* group
    cdef int32_t topic
    cdef int32_t number
    while frame != NULL and not frame.malformed:
        for topic in range(frame.topic_count):
            for number in range(frame.topics[topic].partition_count):
                place = &frame.topics[topic].partitions[number]
                if place.batch.error != 0:
                    continue
                group = _group_of(groups, mask, place.partition)
                if group.partition == NULL:
                    group.partition = place.partition
                    group.first = &place.batch
                else:
                    group.last.next = &place.batch
                group.last = &place.batch
        frame = frame.next


cdef int _append_all(HotWorker* worker, ProducePlan* plans, int64_t now_ms) noexcept nogil:
    # One group append per partition; -1: no memory, nothing was written.
    cdef ProducePlan* plan = plans
    cdef Partition* partition
    cdef Group* groups
    cdef uint32_t batches = 0
    cdef uint32_t capacity = GROUPS_MIN
    cdef uint32_t i
    while plan != NULL:
        batches += <uint32_t>plan.batch_count
        plan = plan.next
    while capacity < 2 * batches:
        capacity *= 2
    groups = <Group*>arena_take(&worker.arena, sizeof(Group) * capacity)
    worker.touched = <Partition**>arena_take(&worker.arena, sizeof(Partition*) * (batches + 1))
    worker.touched_count = 0
    if groups == NULL or worker.touched == NULL:
        return -1
    plan = plans
    while plan != NULL:
        _gather(groups, capacity - 1, plan)
        plan = plan.next
    for i in range(capacity):
        partition = groups[i].partition
        if partition == NULL:
            continue
        partition_append(partition, groups[i].first, now_ms)
        if kb_load_int(&partition.has_watchers):
            worker.touched[worker.touched_count] = partition
            worker.touched_count += 1
    return 0


# --- answer --------------------------------------------------------------------------------------

cdef size_t _answer_bound(ProducePlan* plan) noexcept nogil:
    # An upper bound of the answer's bytes.
    cdef ProduceFrame* frame = plan.frames
    cdef const char* message
    cdef size_t bound = 0
    cdef int32_t topic
    cdef int32_t number
    while frame != NULL:
        bound += 32
        for topic in range(frame.topic_count):
            bound += 32 + <size_t>frame.topics[topic].name_length
            bound += 56 * <size_t>frame.topics[topic].partition_count
            for number in range(frame.topics[topic].partition_count):
                message = frame.topics[topic].partitions[number].batch.error_message
                if message != NULL:
                    bound += 2 * strlen(message) + 16
        frame = frame.next
    return bound


cdef uint8_t* _put_partition(
    HotWorker* worker, uint8_t* at, ProducePartition* place, int version,
) noexcept nogil:
    cdef Batch* batch = &place.batch
    cdef int flexible = version >= FLEXIBLE_FROM
    cdef const uint8_t* message = <const uint8_t*>batch.error_message
    cdef int32_t message_length = -1
    if batch.error != 0:
        worker.produce_errors += 1
        if message != NULL:
            message_length = <int32_t>strlen(batch.error_message)
    else:
        message = NULL
    at = put_i32(at, place.index)
    at = put_i16(at, batch.error)
    at = put_i64(at, batch.base_offset)
    at = put_i64(at, batch.append_time_ms)
    if version >= LOG_START_FROM:
        at = put_i64(at, batch.log_start_offset)
    if version >= RECORD_ERRORS_FROM:
        if batch.error != 0 and batch.error_record >= 0:
            at = put_count(at, flexible, 1)
            at = put_i32(at, batch.error_record)
            at = put_string(at, flexible, message, message_length)
            at = put_no_tags(at, flexible)
        else:
            at = put_count(at, flexible, 0)
        at = put_string(at, flexible, message, message_length)
    return put_no_tags(at, flexible)


cdef uint8_t* _put_frame(
    HotWorker* worker, uint8_t* at, ProduceFrame* frame, int version,
) noexcept nogil:
    cdef int flexible = version >= FLEXIBLE_FROM
    cdef uint8_t* start = at
    cdef ProduceTopic* topic
    cdef int32_t number
    cdef int32_t i
    at = put_i32(at + 4, frame.correlation_id)
    at = put_no_tags(at, flexible)
    at = put_count(at, flexible, frame.topic_count)
    for number in range(frame.topic_count):
        topic = &frame.topics[number]
        if version >= TOPIC_IDS_FROM:
            at = put_raw(at, topic.topic_id, 16)
        else:
            at = put_string(at, flexible, topic.name, topic.name_length)
        at = put_count(at, flexible, topic.partition_count)
        for i in range(topic.partition_count):
            at = _put_partition(worker, at, &topic.partitions[i], version)
        at = put_no_tags(at, flexible)
    at = put_i32(at, 0)           # throttle_time_ms
    at = put_no_tags(at, flexible)
    kb_put_u32(start, <uint32_t>(at - start - 4))
    return at


cdef int _frame_failed(HotWorker* worker, ProduceFrame* frame) noexcept nogil:
    # acks=0: an error can only be told by closing the connection.
    cdef int32_t topic
    cdef int32_t number
    for topic in range(frame.topic_count):
        for number in range(frame.topics[topic].partition_count):
            if frame.topics[topic].partitions[number].batch.error != 0:
                worker.produce_errors += 1
                return 1
    return 0


cdef void _count(HotWorker* worker, ProduceFrame* frame) noexcept nogil:
    cdef Batch* batch
    cdef int32_t topic
    cdef int32_t number
    worker.produce_requests += 1
    for topic in range(frame.topic_count):
        for number in range(frame.topics[topic].partition_count):
            batch = &frame.topics[topic].partitions[number].batch
            if batch.error == 0:
                worker.produce_batches += 1
                worker.produce_records += batch.record_count
                worker.produce_bytes += batch.length_bytes


cdef void _answer(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    cdef Request* request = plan.request
    cdef ProduceFrame* frame = plan.frames
    cdef size_t bound = _answer_bound(plan)
    cdef uint8_t* head = NULL
    cdef uint8_t* at
    if bound <= ANSWER_BYTES_MAX:
        head = answer_reserve(request, <uint32_t>bound, 1)
    at = head
    request.action = ACTION_NO_OP
    while frame != NULL and head != NULL:
        if frame.malformed or (frame.acks == 0 and _frame_failed(worker, frame)):
            request.action = ACTION_CLOSE
            break
        _count(worker, frame)
        if frame.acks != 0:
            at = _put_frame(worker, at, frame, request.api_version)
            request.action = ACTION_SEND
        frame = frame.next
    if head == NULL:
        request.action = ACTION_CLOSE
    elif at != head:
        answer_bytes(request, head, at - head)
    worker_answer(worker, request)


# --- the run -------------------------------------------------------------------------------------

cdef void produce_finish(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plans,
) noexcept nogil:
    """Appends and answers planned and validated requests, then whoever waited for the records."""
    cdef ProducePlan* plan = plans
    cdef int status = _append_all(worker, plans, kb_wall_ms())
    while plan != NULL:
        if status != 0:
            plan.frames = NULL    # nothing was written; the connections end
            plan.request.action = ACTION_CLOSE
            worker_answer(worker, plan.request)
        else:
            _answer(worker, plan)
        plan = plan.next
    worker_flush(worker)          # producers need not wait for the fetches that they complete
    parked_wake_touched(worker, snapshot)
    worker_flush(worker)


cdef ProducePlan* _plan_or_pass_on(
    HotWorker* worker, Snapshot* snapshot, Request* request,
) noexcept nogil:
    # A plan that may be committed; NULL: the request was closed or goes to Python.
    cdef ProducePlan* plan = produce_plan(worker, snapshot, request)
    if plan == NULL:
        request.action = ACTION_CLOSE
        worker_answer(worker, request)
        return NULL
    if plan.reason == REASON_NONE:
        produce_validate(plan)
    if plan.reason != REASON_NONE:
        cold_push(worker, request, plan.reason)
        return NULL
    return plan


cdef void produce_run(HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil:
    """Every Produce request of a run, in order; those for Python go to the worker's cold list.

    Unpacking is slow work: after UNPACK_STEP_BYTES of compressed batches the role of taker is given
    up, and what is validated so far is committed before more is unpacked.
    """
    cdef ProducePlan* plans = NULL
    cdef ProducePlan** place = &plans
    cdef ProducePlan* plan
    cdef Request* request = first
    cdef Request* following
    cdef int64_t compressed_bytes = 0
    while request != NULL:
        following = request.next
        request.next = NULL
        plan = _plan_or_pass_on(worker, snapshot, request)
        if plan != NULL:
            place[0] = plan
            place = &plan.next
            compressed_bytes += plan.compressed_bytes
        request = following
        if compressed_bytes >= UNPACK_STEP_BYTES and request != NULL:
            worker_give_up_role(worker)
            if plans != NULL:
                produce_finish(worker, snapshot, plans)
            plans = NULL
            place = &plans
            compressed_bytes = 0
    if plans != NULL:
        produce_finish(worker, snapshot, plans)
