# cython: language_level=3
"""Produce for a whole run, without the GIL: plan every request, append per partition, answer.

Plan has no effect: it parses the frames, looks partitions up, validates every batch. A request of
which any batch needs Python goes there whole, before anything of it is written. Commit cannot fall
back: all batches of the run that go to one partition become one group append, in the order in which
they came. Answers are built last, from the plan.

A partition that a frame names again is written and answered once, as it was named last
(`_produce_unique`).

A train is one request of several frames; its answers leave as one piece of memory. A frame that
does not parse closes the connection after the answers of the frames before it. acks=0 has no
answer; an error in it closes the connection: there is no other way to report it.

Where a topic wants records on the disk first (`flush.messages`), requests that wrote to it are set
aside until the rest of the run is done. Then the handler, without the role of taker and outside the
snapshot, flushes and answers: it waits for the disk alone, and num.io.threads bounds how many may.

With acks=-1 a batch that lies above the high watermark after its append (and flush) keeps the
answer back until its followers have it (`_produce_wait`).

Protocol: ProduceRequest and ProduceResponse 3-13 (KIP-467 record errors from 8, flexible from 9,
topic ids from 13). Threads: the worker's own; locks only inside partition_append.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from kbroker.core._arena cimport arena_take
from kbroker.core._atomics cimport kb_load_int
from kbroker.core._error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NO_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kbroker.core._limits cimport REQUEST_PARTITIONS_MAX
from kbroker.core._list cimport list_append
from kbroker.core._sync cimport kb_now_ns, kb_wall_ms
from kbroker.core._table cimport Table, table_find_or_put, table_init
from kbroker.log.engine._records cimport (
    AT_ATTRIBUTES,
    CODEC_MASK,
    HEADER_BYTES,
    batch_unpacks_slowly,
    OUTLINE_DAMAGED,
    OUTLINE_NORMAL,
    batch_outline,
    batch_put_time,
    unpacked_bytes_max,
)
from kbroker.log.engine._storage cimport WRITE_HANGS, log_is_slow, log_late_from_ns
from kbroker.log.engine._types cimport NEEDS_PYTHON, Batch
from kbroker.log.engine._validate cimport log_repacks, log_validate
from kbroker.log.upkeep._flush cimport FLUSH_RECORDS
from kbroker.net._request_channel cimport (
    request_channel_set_aside, request_channel_shorten_runs)
from kbroker.net._types cimport ACTION_CLOSE, CAUSE_NO_MEMORY, Request
from kbroker.protocol._cursor cimport (
    Cursor,
    RequestHeader,
    kb_get_u32,
    skip_tags,
    take,
    take_bytes,
    take_count,
    take_header,
    take_i16,
    take_i32,
    take_string,
)
from kbroker.protocol._versions cimport PRODUCE_FLEXIBLE_SINCE
from kbroker.replica._partition cimport (
    Partition, partition_acquire, partition_append, partition_flush, partition_release)
from kbroker.replica._snapshot cimport (
    Snapshot, TopicEntry, snapshot_by_id, snapshot_by_name, snapshot_enter, snapshot_leave)
from kbroker.engine.worker._answers cimport (
    put_off_push, worker_answer, worker_give_up_role, worker_hand_over,
    worker_unpacks_long)
from kbroker.engine.worker._context cimport (
    REASON_DECOMPRESS,
    REASON_NONE,
    REASON_RECOMPRESS,
    AwaitedFlush,
    HotWorker,
)
from kbroker.engine.waiting._long_polls cimport long_polls_wake, long_polls_wake_touched
from kbroker.engine.apis._produce_answer cimport produce_answer, produce_fail_frame
from kbroker.engine.apis._produce_kept cimport (
    produce_acquire_partitions, produce_release_partitions)
from kbroker.engine.apis._produce_plan cimport (
    TOPIC_IDS_FROM,
    PlanWalk,
    ProduceFrame,
    ProducePartition,
    ProducePlan,
    ProduceTopic,
    plan_next,
)
from kbroker.engine.apis._produce_rights cimport (
    produce_ask_rights, produce_begin_rights, produce_leave_to_python, produce_may_use_id,
    produce_refused)
from kbroker.engine.apis._produce_unique cimport names_one_partition, produce_unique
from kbroker.engine.apis._produce_verify cimport (
    produce_await_coordinator, produce_let_found_go, produce_let_guards_go,
    produce_note_transactional, produce_take_guards, produce_those_joined, produce_verify)
from kbroker.engine.apis._produce_wait cimport produce_answer_or_park, produce_wait
from kbroker.engine.worker._worker_mode cimport MAY_UNPACK, MAY_WAIT_FOR_DISK

cdef enum:
    PARTITION_BYTES_MIN = 8       # an index, and no records
    PARTITION_BYTES_MIN_FLEXIBLE = 6
    UNPACK_STEP_BYTES = 64 << 10  # compressed; a batch may unpack to 256 times its size
    PUT_OFF_BYTES = 16 << 10      # the same, of one request

    APPENDED = 0
    APPENDED_SOME_WAIT = 1
    APPENDED_NOTHING = -1

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
    if worker.context.verdicts != NULL:
        produce_begin_rights(worker, plan)
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
    if request.guards != NULL:
        produce_take_guards(plan)
    return plan


cdef inline size_t _topic_bytes_min(int version) noexcept nogil:
    # A topic without partitions: its id or an empty name, the count, the end of its tags.
    if version >= TOPIC_IDS_FROM:
        return 18
    return 3 if version >= PRODUCE_FLEXIBLE_SINCE else 6


cdef void _parse_frame(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plan, ProduceFrame* frame,
    uint8_t* data, uint32_t length,
) noexcept nogil:
    cdef Cursor cursor
    cdef int version = plan.request.api_version
    cdef int flexible = version >= PRODUCE_FLEXIBLE_SINCE
    cdef RequestHeader header
    cdef int64_t id_length = 0
    cdef int32_t count
    cdef int32_t number
    take_header(&cursor, &header, data, length, flexible)
    frame.correlation_id = header.correlation_id
    frame.unpacked_left = unpacked_bytes_max(length)
    frame.transactional_id = take_string(&cursor, flexible, &id_length)
    frame.transactional_id_length = <int32_t>id_length
    frame.producer_id = -1
    frame.acks = take_i16(&cursor)
    frame.timeout_ms = take_i32(&cursor)
    count = take_count(&cursor, flexible, _topic_bytes_min(version))
    if not cursor.failed and count <= REQUEST_PARTITIONS_MAX:
        frame.topics = <ProduceTopic*>arena_take(
            &worker.arena, sizeof(ProduceTopic) * <size_t>(count + 1))
    if frame.topics == NULL:
        frame.malformed = 1
        return
    frame.topic_count = count     # from here on there are as many
    frame.admin = (
        header.client_id != NULL and header.client_id_length == 14
        and memcmp(header.client_id, ADMIN_CLIENT, 14) == 0)
    for number in range(frame.topic_count):
        _parse_topic(worker, snapshot, plan, frame, &frame.topics[number], &cursor)
        if cursor.failed:
            frame.malformed = 1
            return
    skip_tags(&cursor, flexible)
    frame.malformed = cursor.failed or (
        not names_one_partition(frame) and produce_unique(worker, frame) != 0)
    if frame.error != 0:
        produce_fail_frame(frame)


cdef void _parse_topic(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plan, ProduceFrame* frame,
    ProduceTopic* topic, Cursor* cursor,
) noexcept nogil:
    cdef int version = plan.request.api_version
    cdef int flexible = version >= PRODUCE_FLEXIBLE_SINCE
    cdef TopicEntry* entry = NULL
    cdef ProducePartition* place
    cdef int64_t length
    cdef int16_t refused
    cdef int32_t count
    cdef int32_t number
    if version >= TOPIC_IDS_FROM:
        topic.topic_id = take(cursor, 16)
        refused = UNKNOWN_TOPIC_ID
    else:
        topic.name = take_string(cursor, flexible, &length)
        topic.name_length = <int32_t>length
        refused = UNKNOWN_TOPIC_OR_PARTITION
        if topic.name == NULL:
            cursor.failed = 1
    count = take_count(
        cursor, flexible, PARTITION_BYTES_MIN_FLEXIBLE if flexible else PARTITION_BYTES_MIN)
    if <int64_t>plan.batch_count + count > REQUEST_PARTITIONS_MAX:
        cursor.failed = 1
    if cursor.failed:
        return
    if version >= TOPIC_IDS_FROM:
        entry = snapshot_by_id(snapshot, topic.topic_id)
    else:
        entry = snapshot_by_name(snapshot, topic.name, topic.name_length)
    topic.entry = entry
    if entry != NULL:
        refused = NO_ERROR
    if plan.asks and count > 0:
        refused = produce_refused(worker, plan, topic, refused)
    topic.partitions = <ProducePartition*>arena_take(
        &worker.arena, sizeof(ProducePartition) * <size_t>(count + 1))
    if topic.partitions == NULL:
        cursor.failed = 1
        return
    topic.partition_count = count
    for number in range(topic.partition_count):
        place = &topic.partitions[number]
        place.index = take_i32(cursor)
        place.batch.data = take_bytes(cursor, flexible, &length)
        place.batch.length_bytes = <uint32_t>(length if length > 0 else 0)
        skip_tags(cursor, flexible)
        if cursor.failed:
            return
        _plan_batch(worker, plan, frame, place, entry, refused)
    skip_tags(cursor, flexible)


cdef void _plan_batch(
    HotWorker* worker, ProducePlan* plan, ProduceFrame* frame, ProducePartition* place,
    TopicEntry* entry, int16_t refused,
) noexcept nogil:
    # Errors in the order in which Kafka finds them. `refused`: that of its topic.
    cdef Batch* batch = &place.batch
    cdef int outline
    cdef int slow
    batch.acks = <signed char>frame.acks
    batch.api_version = <signed char>plan.request.api_version
    batch.error_record = -1
    batch.base_offset = -1
    batch.append_time_ms = -1
    batch.log_start_offset = -1
    batch.arena = &worker.arena
    batch.unpacked_left = &frame.unpacked_left
    plan.batch_count += 1
    outline = batch_outline(batch)
    if outline != OUTLINE_NORMAL and frame.error == 0:
        if outline == OUTLINE_DAMAGED:
            frame.error = CORRUPT_MESSAGE
        elif frame.transactional_id == NULL or (
            plan.asks and not produce_may_use_id(worker, plan, frame)
        ):
            frame.error = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            frame.error = produce_note_transactional(plan, frame, batch)
    if refused != NO_ERROR:
        batch.error = refused
    elif place.index < 0 or place.index >= entry.partition_count:
        batch.error = UNKNOWN_TOPIC_OR_PARTITION
    elif batch.error != 0:
        pass
    elif frame.acks < -1 or frame.acks > 1:
        batch.error = INVALID_REQUIRED_ACKS
    elif entry.internal and not frame.admin:
        batch.error = INVALID_TOPIC_EXCEPTION
    elif entry.partitions[place.index] == NULL:
        batch.error = NOT_LEADER_OR_FOLLOWER
    else:
        place.partition = entry.partitions[place.index]
        if batch.length_bytes > HEADER_BYTES and batch.data[AT_ATTRIBUTES + 1] & CODEC_MASK:
            plan.compressed_bytes += batch.length_bytes
            plan.largest_bytes = max(plan.largest_bytes, <int64_t>batch.length_bytes)
            plan.unpacks_slowly |= batch_unpacks_slowly(batch)
        slow = log_is_slow(place.partition.log)
        if slow > plan.slow_hangs:
            plan.slow = place.partition.log
            plan.slow_hangs = slow
        if log_repacks(place.partition.log, batch):
            plan.reason = REASON_RECOMPRESS


cdef void produce_validate(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    """CRC and every record, outside every lock. The first batch that needs Python ends it. Who has
    unpacked for long gives up the role of taker."""
    cdef int64_t now_ms = kb_wall_ms()
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place = plan_next(&walk)
    while place != NULL:
        if place.batch.error == 0:
            if log_validate(place.partition.log, &place.batch, now_ms) == NEEDS_PYTHON:
                plan.reason = REASON_DECOMPRESS
                return
            if worker.has_role and worker_unpacks_long(worker, worker.unpacks_since_ns):
                worker_give_up_role(worker)
        place = plan_next(&walk)


# --- commit --------------------------------------------------------------------------------------

cdef inline int _is_of_partition(const void* item, const void* fresh) noexcept nogil:
    return (<const Group*>item).partition == (<const Group*>fresh).partition


cdef Group* _group_of(Table* table, Group* groups, Partition* partition) noexcept nogil:
    cdef Group* fresh = &groups[table.count]
    fresh.partition = partition
    return <Group*>table_find_or_put(
        table, <uint32_t>((<size_t>partition >> 6) * 2654435761u), _is_of_partition, fresh)


cdef void _gather(Table* table, Group* groups, ProducePlan* plan) noexcept nogil:
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place = plan_next(&walk)
    cdef Group* group
    while place != NULL:
        if place.batch.error == 0:
            batch_put_time(&place.batch)
            group = _group_of(table, groups, place.partition)
            list_append(&group.first, &group.last, &place.batch, &place.batch.next,
                        "a partition's batches: nothing is after the last")
        place = plan_next(&walk)


cdef int _append_all(HotWorker* worker, ProducePlan* plans, int64_t now_ms) noexcept nogil:
    # One group append per partition. APPENDED_NOTHING: no memory. APPENDED_SOME_WAIT: for their
    # followers, or for the disk.
    cdef ProducePlan* plan = plans
    cdef Partition* partition
    cdef Group* groups
    cdef Table table              # of groups
    cdef uint32_t batches = 0
    cdef uint32_t i
    cdef int status = APPENDED
    while plan != NULL:
        batches += <uint32_t>plan.batch_count
        plan = plan.next
    groups = <Group*>arena_take(&worker.arena, sizeof(Group) * (batches + 1))
    worker.touched = <Partition**>arena_take(&worker.arena, sizeof(Partition*) * (batches + 1))
    worker.touched_count = 0
    if (table_init(&table, &worker.arena, batches) != 0 or groups == NULL
            or worker.touched == NULL):
        return APPENDED_NOTHING
    plan = plans
    while plan != NULL:
        _gather(&table, groups, plan)
        plan = plan.next
    for i in range(table.count):
        partition = groups[i].partition
        if partition_append(partition, groups[i].first, now_ms):
            status = APPENDED_SOME_WAIT
        if kb_load_int(&partition.log.flush_due):
            _await_flush(worker, &groups[i])
        if kb_load_int(&partition.has_watchers):
            worker.touched[worker.touched_count] = partition
            worker.touched_count += 1
    return status


# --- flushes that are waited for -----------------------------------------------------------------

cdef void _await_flush(HotWorker* worker, Group* group) noexcept nogil:
    cdef Batch* batch = group.first
    cdef AwaitedFlush* awaited = <AwaitedFlush*>arena_take(&worker.arena, sizeof(AwaitedFlush))
    if awaited == NULL:           # then it is done here, although others wait for it
        _flush_group(group.partition, batch)
        return
    partition_acquire(group.partition)
    awaited.partition = group.partition
    awaited.batches = batch
    awaited.next = worker.flushes
    worker.flushes = awaited
    while batch != NULL:
        batch.awaits_flush = 1
        batch = batch.next


cdef void _flush_group(Partition* partition, Batch* batch) noexcept nogil:
    if partition_flush(partition, FLUSH_RECORDS, batch) == 0:
        return
    while batch != NULL:
        batch.awaits_followers = 0
        if batch.error == 0:
            batch.error = KAFKA_STORAGE_ERROR
            batch.error_message = b"the log cannot be brought to the disk"
            batch.base_offset = -1
            batch.append_time_ms = -1
            batch.log_start_offset = -1
        batch = batch.next


cdef int _awaits_flush(ProducePlan* plan) noexcept nogil:
    # If so, every partition that its answer may have to ask for its leader outlives the snapshot.
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place = plan_next(&walk)
    cdef int awaits = 0
    while place != NULL:
        awaits |= place.batch.awaits_flush
        place = plan_next(&walk)
    if awaits:
        produce_acquire_partitions(plan)
    return awaits


cdef void produce_flush(HotWorker* worker) noexcept nogil:
    """The end of a run that wrote to topics with `flush.messages`: to the disk, then answered, or
    to wait for the followers."""
    cdef AwaitedFlush* awaited = worker.flushes
    cdef ProducePlan* plan = <ProducePlan*>worker.unflushed
    cdef ProducePlan* following
    cdef Snapshot* snapshot
    if awaited == NULL:
        return
    request_channel_shorten_runs(worker.context.request_channel)
    worker_give_up_role(worker)
    while awaited != NULL:
        _flush_group(awaited.partition, awaited.batches)
        awaited = awaited.next
    snapshot = snapshot_enter(worker.context.registry, worker.reader)
    while plan != NULL:
        following = plan.next
        produce_answer_or_park(worker, snapshot, plan)
        produce_release_partitions(plan)
        plan = following
    worker_hand_over(worker)
    if worker.waiting != NULL:
        produce_wait(worker, snapshot)
    awaited = worker.flushes
    while awaited != NULL:
        if kb_load_int(&awaited.partition.has_watchers):
            long_polls_wake(worker, snapshot, awaited.partition)
        partition_release(awaited.partition)
        awaited = awaited.next
    worker_hand_over(worker)
    snapshot_leave(worker.reader)
    worker.flushes = NULL
    worker.unflushed = NULL


# --- the run -------------------------------------------------------------------------------------

cdef void produce_finish(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plans,
) noexcept nogil:
    """Appends and answers planned and validated requests, then wakes those that wait for
    records."""
    cdef ProducePlan* plan = produce_those_joined(worker, snapshot, plans)
    cdef ProducePlan* following
    cdef ProducePlan** place = <ProducePlan**>&worker.unflushed
    cdef int status = _append_all(worker, plan, kb_wall_ms())
    while place[0] != NULL:       # of an earlier step of the run
        place = &place[0].next
    while plan != NULL:
        following = plan.next
        plan.next = NULL
        if plan.request.guards != NULL:
            produce_let_guards_go(plan)
        if plan.unverified != NULL:
            produce_let_found_go(plan)
        if status == APPENDED_NOTHING:
            plan.frames = NULL    # nothing was written; the connections end
            plan.request.action = ACTION_CLOSE
            plan.request.cause = CAUSE_NO_MEMORY
            worker_answer(worker, plan.request)
        elif worker.flushes != NULL and _awaits_flush(plan):
            place[0] = plan
            place = &plan.next
        elif status == APPENDED_SOME_WAIT:
            produce_answer_or_park(worker, snapshot, plan)
        else:
            produce_answer(worker, plan)
        plan = following
    worker_hand_over(worker)          # producers need not wait for the fetches that they complete
    if worker.waiting != NULL:
        produce_wait(worker, snapshot)
    if worker.touched_count:
        long_polls_wake_touched(worker, snapshot)
    worker_hand_over(worker)


cdef ProducePlan* _plan_or_pass_on(
    HotWorker* worker, Snapshot* snapshot, Request* request,
) noexcept nogil:
    # A plan that may be committed; NULL: the request was closed, set aside, waits for its
    # transaction's coordinator, or goes to Python.
    cdef ProducePlan* plan = produce_plan(worker, snapshot, request)
    if plan == NULL:
        request.action = ACTION_CLOSE
        request.cause = CAUSE_NO_MEMORY
        worker_answer(worker, request)
        return NULL
    if plan.unknown_rights:
        produce_ask_rights(worker, plan)
        return NULL
    if plan.slow != NULL and not worker.may & MAY_WAIT_FOR_DISK and request_channel_set_aside(
        worker.context.request_channel, request, plan.slow, log_late_from_ns(plan.slow),
        plan.slow_hangs == WRITE_HANGS,
    ):
        return NULL
    if (plan.reason == REASON_NONE and plan.compressed_bytes >= PUT_OFF_BYTES
            and not worker.may & MAY_UNPACK):
        if plan.unpacks_slowly:
            worker_give_up_role(worker)
        put_off_push(worker, request, plan.largest_bytes >= PUT_OFF_BYTES)
        return NULL
    if plan.transactional_count > 0 and produce_verify(worker, plan):
        return NULL
    if plan.reason == REASON_NONE:
        produce_validate(worker, plan)
    if plan.reason != REASON_NONE:
        if plan.unverified != NULL:
            return NULL if produce_await_coordinator(worker, plan) else plan
        produce_leave_to_python(worker, plan)
        return NULL
    return plan


cdef void produce_run(HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil:
    """Every Produce request of a run, in order; those for Python go to the worker's cold list.

    Unpacking is slow work, and how slow is not known beforehand: a request with PUT_OFF_BYTES of
    compressed batches is put off to the end of the run (`_run`), so that the others do not wait for
    it. After UNPACK_STEP_BYTES of smaller ones, or a millisecond of these, the role of taker is
    given up (of a slow codec at once), and the validated requests are committed before the rest.
    """
    cdef ProducePlan* plans = NULL
    cdef ProducePlan** place = &plans
    cdef ProducePlan* plan
    cdef Request* request = first
    cdef Request* following
    cdef int64_t step_since_ns = kb_now_ns()
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
        if request != NULL and (worker_unpacks_long(worker, step_since_ns) or (
                not worker.may & MAY_UNPACK and compressed_bytes >= UNPACK_STEP_BYTES)):
            worker_give_up_role(worker)
            if plans != NULL:
                produce_finish(worker, snapshot, plans)
            plans = NULL
            place = &plans
            step_since_ns = kb_now_ns()
            compressed_bytes = 0
    if plans != NULL:
        produce_finish(worker, snapshot, plans)
