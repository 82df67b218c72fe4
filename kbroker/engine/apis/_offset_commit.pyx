# cython: language_level=3
"""OffsetCommit for a run, without the GIL: all commits to one shard are one write.

    plan    parse, look the topics up, build the request's record batch; no effect
    commit  per shard, under its lock: may this member? -> one group append -> the memory follows
    answer  every partition without an error: anything else goes to Python

Python (handlers/offset_commit.py) says what the API means and is the authority; the answers here
are its bytes. It gets, whole and in its place in the connection's order, whatever is not plainly
right: a partition that is not there, a text that is too long or not ASCII, a group or a member that
is not known or may not commit now, a right that is not known, a log that refuses. Up to that moment
nothing has been written, so nothing has to be undone.

An offset that is answered is in the log, and with one replica in sync that is all that acks=-1 asks
for. With followers the answer waits until they have it (`_group_write`).

Fairness: after STEP_BYTES of requests the role of taker is given up. Protocol: OffsetCommitRequest
2-10 (retention 2-4, throttle time from 3, leader epochs from 6, instance ids from 7, flexible from
8, topic ids from 10). Threads: the worker's own. Locks: a shard's, below it the partition's.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free

from kbroker.coordinator.runtime._batches cimport (
    BatchWriter, batch_begin, batch_bound, batch_end, batch_prepare)
from kbroker.coordinator.runtime._shards cimport (
    shard_append_locked, shard_is_slow, shard_late_from_ns, shard_unlock)
from kbroker.coordinator.runtime._structs cimport SHARD_ACTIVE, Shards
from kbroker.core._arena cimport arena_take
from kbroker.core._atomics cimport kb_load_i64, kb_load_int
from kbroker.core._figures cimport kb_count
from kbroker.core._limits cimport REQUEST_PARTITIONS_MAX, RUN_REQUESTS_MAX
from kbroker.core._list cimport list_append
from kbroker.core._sync cimport kb_now_ns, kb_wall_ms
from kbroker.coordinator.group._offset_records cimport (
    NO_EXPIRY, batch_put_offset, offset_record_bound)
from kbroker.coordinator.group._offsets cimport offset_apply_locked
from kbroker.coordinator.group._shards cimport (
    group_find_locked, group_shard_for, group_shard_lock)
from kbroker.coordinator.group._state_rows cimport COMMITS_OF_MEMBERS, COMMITS_OF_NO_MEMBER
from kbroker.coordinator.group._structs cimport GroupShard, Member
from kbroker.log.upkeep._flush cimport FLUSH_RECORDS
from kbroker.log.engine._types cimport Batch
from kbroker.log.engine._storage cimport WRITE_HANGS
from kbroker.net._request cimport answer_bytes, answer_reserve
from kbroker.net._request_channel cimport request_channel_set_aside
from kbroker.net._types cimport ACTION_SEND, Request
from kbroker.protocol._cursor cimport (
    Cursor,
    RequestHeader,
    kb_put_u32,
    put_count,
    put_i16,
    put_i32,
    put_no_tags,
    put_raw,
    put_string,
    skip_tags,
    take,
    take_count,
    take_header,
    take_i32,
    take_i64,
    take_string,
)
from kbroker.protocol._versions cimport OFFSET_COMMIT_FLEXIBLE_SINCE
from kbroker.replica._partition cimport (
    Partition,
    partition_acquire,
    partition_flush,
    partition_release,
)
from kbroker.replica._snapshot cimport (
    Snapshot,
    TopicEntry,
    snapshot_by_id,
    snapshot_by_name,
)
from kbroker.engine.worker._answers cimport (
    cold_push, worker_give_up_role, worker_hand_over)
from kbroker.engine.worker._asked_rights cimport client_may
from kbroker.engine.worker._charges cimport worker_answer_charged
from kbroker.engine.worker._context cimport REASON_GROUP, HotWorker
from kbroker.engine.worker._verdicts cimport OPERATION_READ, RESOURCE_GROUP, RESOURCE_TOPIC
from kbroker.engine.apis._group_member cimport (
    asking_member_locked,
    is_ascii,
    take_asking_member,
    take_text,
)
from kbroker.engine.apis._group_write cimport (
    GroupWrite,
    group_write_answer,
    group_write_new,
)
from kbroker.engine.waiting._long_polls cimport long_polls_let_go, long_polls_wake
from kbroker.engine.worker._worker_mode cimport MAY_WAIT_FOR_DISK

cdef enum:
    RETENTION_TO = 4
    THROTTLE_FROM = 3
    LEADER_EPOCH_FROM = 6
    INSTANCE_FROM = 7
    TOPIC_IDS_FROM = 10

    BATCH_BYTES_MAX = 4 << 20     # a group's name is in every record: more is for Python
    STEP_BYTES = 256 << 10        # parsed and written before another may take
    HEAD_BYTES_MAX = 32
    TOPIC_BYTES_MIN = 16          # in a request: a name or an id, and one partition at least
    PARTITION_BYTES_MIN = 14
    TOPIC_BYTES_MAX = 16          # in an answer, but for the name
    PARTITION_BYTES = 4 + 2 + 1


# The plans of one shard.
cdef struct ShardPlans:
    GroupShard* shard
    CommitPlan* first
    CommitPlan* last
    Batch* batches                # what of them was written


# --- plan ----------------------------------------------------------------------------------------

cdef int _parse_partition(
    CommitPlan* plan, Cursor* cursor, CommittedPartition* place, TopicEntry* entry,
    int64_t metadata_max,
) noexcept nogil:
    # -1: for Python.
    cdef int version = plan.request.api_version
    cdef int flexible = version >= OFFSET_COMMIT_FLEXIBLE_SINCE
    place.key.group = plan.asking.group
    place.key.topic.at = entry.key.name
    place.key.topic.length = entry.key.name_length
    place.key.partition = take_i32(cursor)
    place.value.offset = take_i64(cursor)
    place.value.leader_epoch = -1
    if version >= LEADER_EPOCH_FROM:
        place.value.leader_epoch = take_i32(cursor)
    take_text(cursor, flexible, &place.value.metadata)
    skip_tags(cursor, flexible)
    if place.value.metadata.length < 0:
        place.value.metadata.length = 0
    if (
        cursor.failed or place.key.partition < 0 or place.key.partition >= entry.partition_count
        or place.value.metadata.length > metadata_max or not is_ascii(&place.value.metadata)
    ):
        return -1
    return 0


cdef int _parse_topic(
    HotWorker* worker, Snapshot* snapshot, CommitPlan* plan, Cursor* cursor,
    CommittedTopic* topic, int64_t metadata_max,
) noexcept nogil:
    # -1: for Python.
    cdef int version = plan.request.api_version
    cdef int flexible = version >= OFFSET_COMMIT_FLEXIBLE_SINCE
    cdef TopicEntry* entry
    cdef int64_t length = 0
    cdef int32_t count
    cdef int32_t number
    if version >= TOPIC_IDS_FROM:
        topic.topic_id = take(cursor, 16)
        if topic.topic_id == NULL:
            return -1
        entry = snapshot_by_id(snapshot, topic.topic_id)
    else:
        topic.name = take_string(cursor, flexible, &length)
        topic.name_length = <int32_t>length
        if topic.name == NULL:
            return -1
        entry = snapshot_by_name(snapshot, topic.name, topic.name_length)
    count = take_count(cursor, flexible, PARTITION_BYTES_MIN)
    if (
        cursor.failed or entry == NULL or count == 0
        or <int64_t>plan.partition_count + count > REQUEST_PARTITIONS_MAX
        or not client_may(worker.context, plan.request, OPERATION_READ, RESOURCE_TOPIC,
                          entry.key.name, entry.key.name_length)
    ):
        return -1                 # a topic of nothing is left out of the answer
    topic.partitions = <CommittedPartition*>arena_take(
        &worker.arena, sizeof(CommittedPartition) * <size_t>(count + 1))
    if topic.partitions == NULL:
        return -1
    topic.partition_count = count
    plan.partition_count += count
    for number in range(topic.partition_count):
        if _parse_partition(plan, cursor, &topic.partitions[number], entry, metadata_max) != 0:
            return -1
        topic.partitions[number].value.topic_id = entry.key.topic_id
    skip_tags(cursor, flexible)
    return 0


cdef int _parse(HotWorker* worker, Snapshot* snapshot, CommitPlan* plan) noexcept nogil:
    # -1: for Python.
    cdef int version = plan.request.api_version
    cdef int flexible = version >= OFFSET_COMMIT_FLEXIBLE_SINCE
    cdef int64_t metadata_max = worker.context.offset_metadata_max
    cdef Cursor cursor
    cdef RequestHeader header
    cdef int32_t count
    cdef int32_t number
    take_header(&cursor, &header, plan.request.data, plan.request.length_bytes, flexible)
    plan.correlation_id = header.correlation_id
    take_asking_member(&cursor, &plan.asking, flexible, version >= INSTANCE_FROM)
    plan.retention_ms = take_i64(&cursor) if version <= RETENTION_TO else -1
    count = take_count(&cursor, flexible, TOPIC_BYTES_MIN)
    if cursor.failed or count > REQUEST_PARTITIONS_MAX or not is_ascii(&plan.asking.group):
        return -1
    if not client_may(worker.context, plan.request, OPERATION_READ, RESOURCE_GROUP,
                      plan.asking.group.at, plan.asking.group.length):
        return -1
    plan.topics = <CommittedTopic*>arena_take(
        &worker.arena, sizeof(CommittedTopic) * <size_t>(count + 1))
    if plan.topics == NULL:
        return -1
    plan.topic_count = count
    for number in range(plan.topic_count):
        if _parse_topic(
            worker, snapshot, plan, &cursor, &plan.topics[number], metadata_max,
        ) != 0:
            return -1
    skip_tags(&cursor, flexible)
    # Without a partition there is nothing to ask a group for.
    return -1 if cursor.failed or plan.partition_count == 0 else 0


cdef inline int64_t _end_ms(int64_t now_ms, int64_t retention_ms) noexcept nogil:
    # A retention may be as long as a number can say: then it has no end.
    return INT64_MAX if retention_ms > INT64_MAX - now_ms else now_ms + retention_ms


cdef int _build(HotWorker* worker, CommitPlan* plan, int64_t now_ms) noexcept nogil:
    # The batch of the request's records; -1: no memory, or too much of it is asked for.
    cdef BatchWriter writer
    cdef CommittedTopic* topic
    cdef CommittedPartition* place
    cdef size_t bound = batch_bound()
    cdef uint8_t* memory
    cdef int32_t number
    cdef int32_t i
    for number in range(plan.topic_count):
        topic = &plan.topics[number]
        for i in range(topic.partition_count):
            place = &topic.partitions[i]
            place.value.commit_ms = now_ms
            place.value.expire_ms = NO_EXPIRY
            if plan.retention_ms != -1:
                # The record of such an offset has no room for the epoch.
                place.value.expire_ms = _end_ms(now_ms, plan.retention_ms)
                place.value.leader_epoch = -1
            bound += offset_record_bound(&place.key, &place.value)
    if bound > BATCH_BYTES_MAX:
        return -1
    memory = <uint8_t*>arena_take(&worker.arena, bound)
    if memory == NULL:
        return -1
    batch_begin(&writer, memory, now_ms)
    for number in range(plan.topic_count):
        topic = &plan.topics[number]
        for i in range(topic.partition_count):
            batch_put_offset(&writer, &topic.partitions[i].key, &topic.partitions[i].value)
    batch_prepare(&plan.batch, memory, batch_end(&writer), writer.count, now_ms)
    return 0


cdef CommitPlan* _plan(
    HotWorker* worker, Snapshot* snapshot, Request* request, int64_t now_ms,
) noexcept nogil:
    # NULL: for Python.
    cdef CommitPlan* plan = <CommitPlan*>arena_take(&worker.arena, sizeof(CommitPlan))
    if plan == NULL or worker.context.groups == NULL:
        return NULL
    plan.request = request
    if _parse(worker, snapshot, plan) != 0:
        return NULL
    plan.shard = group_shard_for(
        worker.context.groups, plan.asking.group.at, plan.asking.group.length)
    if plan.shard == NULL or _build(worker, plan, now_ms) != 0:
        return NULL
    return plan


# --- commit --------------------------------------------------------------------------------------

cdef int _accepts_locked(CommitPlan* plan, int64_t heard_ms) noexcept nogil:
    # Whether the group takes offsets from this member, or from a client that is no member.
    cdef Member* member
    plan.group = group_find_locked(plan.shard, plan.asking.group.at, plan.asking.group.length)
    if plan.group == NULL or not plan.group.published:
        return 0
    if plan.asking.generation < 0:
        return plan.group.commits_of == COMMITS_OF_NO_MEMBER
    member = asking_member_locked(plan.group, &plan.asking)
    if member == NULL or plan.group.commits_of != COMMITS_OF_MEMBERS:
        return 0
    member.heard_ms = heard_ms
    return 1


cdef int _apply_locked(CommitPlan* plan) noexcept nogil:
    # The memory follows the log. -1: there is none for it. Then an OffsetFetch would answer with
    # what was committed before, so Python commits once more, and answers an error if it has none.
    cdef CommittedTopic* topic
    cdef int64_t log_offset = plan.batch.base_offset
    cdef int status = 0
    cdef int32_t number
    cdef int32_t i
    for number in range(plan.topic_count):
        topic = &plan.topics[number]
        for i in range(topic.partition_count):
            if offset_apply_locked(
                plan.shard, plan.group, &topic.partitions[i].key, &topic.partitions[i].value,
                log_offset,
            ) != 0:
                status = -1
            log_offset += 1
    return status


cdef Partition* _commit_shard(ShardPlans* plans, int64_t now_ms, int64_t heard_ms) noexcept nogil:
    # The partition, with a reference, if it was written to and has watchers or a waiting write, or
    # has to wait for the disk or followers.
    cdef GroupShard* shard = plans.shard
    cdef CommitPlan* plan = plans.first
    cdef Batch* first = NULL
    cdef Batch** place = &first
    cdef Partition* partition = NULL
    cdef int waiting
    group_shard_lock(shard)
    while plan != NULL:
        plan.accepted = (
            kb_load_int(&shard.base.state) == SHARD_ACTIVE and _accepts_locked(plan, heard_ms))
        if plan.accepted:
            place[0] = &plan.batch
            place = &plan.batch.next
        plan = plan.next
    plans.batches = first
    if first != NULL:
        waiting = shard_append_locked(&shard.base, first, now_ms)
        if (waiting or kb_load_int(&shard.base.partition.has_watchers)
                or kb_load_int(&shard.base.partition.log.flush_due)):
            partition = shard.base.partition
            partition_acquire(partition)
        plan = plans.first
        while plan != NULL:
            plan.accepted = (
                plan.accepted and plan.batch.error == 0 and _apply_locked(plan) == 0)
            plan = plan.next
    shard_unlock(&shard.base)
    return partition


# --- the run -------------------------------------------------------------------------------------

cdef int _put_answer(CommitPlan* plan, uint32_t* places) noexcept nogil:
    # The request's partitions, with a 0 after each. The places of these go to `places`, unless it
    # is NULL. -1: no memory.
    cdef int version = plan.request.api_version
    cdef int flexible = version >= OFFSET_COMMIT_FLEXIBLE_SINCE
    cdef size_t bound = HEAD_BYTES_MAX + PARTITION_BYTES * <size_t>plan.partition_count
    cdef CommittedTopic* topic
    cdef uint8_t* head
    cdef uint8_t* at
    cdef int32_t number
    cdef int32_t i
    for number in range(plan.topic_count):
        bound += TOPIC_BYTES_MAX + <size_t>plan.topics[number].name_length + 16
    head = answer_reserve(plan.request, <uint32_t>bound, 1)
    if head == NULL:
        return -1
    at = put_i32(head + 4, plan.correlation_id)
    at = put_no_tags(at, flexible)
    if version >= THROTTLE_FROM:
        at = put_i32(at, 0)
    at = put_count(at, flexible, plan.topic_count)
    for number in range(plan.topic_count):
        topic = &plan.topics[number]
        if version >= TOPIC_IDS_FROM:
            at = put_raw(at, topic.topic_id, 16)
        else:
            at = put_string(at, flexible, topic.name, topic.name_length)
        at = put_count(at, flexible, topic.partition_count)
        for i in range(topic.partition_count):
            at = put_i32(at, topic.partitions[i].key.partition)
            if places != NULL:
                places[0] = <uint32_t>(at - head)
                places += 1
            at = put_i16(at, 0)
            at = put_no_tags(at, flexible)
        at = put_no_tags(at, flexible)
    at = put_no_tags(at, flexible)
    kb_put_u32(head, <uint32_t>(at - head - 4))
    answer_bytes(plan.request, head, at - head)
    return 0


cdef void _answer(HotWorker* worker, CommitPlan* plan, Partition* partition) noexcept nogil:
    # Everything is well, or will be when the followers have it.
    cdef GroupWrite* write = NULL
    cdef int status = 0
    if plan.batch.awaits_followers:
        write = group_write_new(&plan.batch, plan.partition_count)
        status = -1 if write == NULL else _put_answer(plan, write.places)
    else:
        status = _put_answer(plan, NULL)
    if status != 0:
        free(write)
        cold_push(worker, plan.request, REASON_GROUP)   # once more, which changes nothing
        return
    kb_count(&worker.commit_requests, 1)
    kb_count(&worker.commit_offsets, plan.partition_count)
    if write != NULL:
        group_write_answer(worker, plan.request, write, partition)
        return
    plan.request.action = ACTION_SEND
    worker_answer_charged(worker, plan.request)


cdef int _is_set_aside(HotWorker* worker, CommitPlan* plan) noexcept nogil:
    # A run does not wait for a write to a slow file.
    cdef int slow = 0 if worker.may & MAY_WAIT_FOR_DISK else shard_is_slow(&plan.shard.base)
    return slow != 0 and request_channel_set_aside(
        worker.context.request_channel, plan.request, plan.shard,
        shard_late_from_ns(&plan.shard.base), slow == WRITE_HANGS)


cdef void _gather(ShardPlans* shards, int* count, CommitPlan* plan) noexcept nogil:
    # A run has few shards.
    cdef int i = 0
    while i < count[0] and shards[i].shard != plan.shard:
        i += 1
    if i == count[0]:
        shards[i].shard = plan.shard
        shards[i].first = shards[i].last = NULL
        count[0] += 1
    list_append(&shards[i].first, &shards[i].last, plan, &plan.next,
                "commits of a shard: nothing is after the last")


cdef void _flush(
    HotWorker* worker, Snapshot* snapshot, ShardPlans* plans, Partition* partition
) noexcept nogil:
    # The flush that the topic's settings require. If it fails, Python gets the error from the log.
    cdef CommitPlan* plan = plans.first
    cdef int status
    worker_hand_over(worker)
    worker_give_up_role(worker)
    long_polls_let_go(worker, snapshot)
    status = partition_flush(partition, FLUSH_RECORDS, plans.batches)
    while plan != NULL:
        plan.accepted = plan.accepted and status == 0 and plan.batch.error == 0
        plan = plan.next


cdef void _finish(
    HotWorker* worker, Snapshot* snapshot, ShardPlans* shards, int count, int64_t now_ms,
) noexcept nogil:
    # Written, remembered, answered; then the readers of __consumer_offsets are woken.
    cdef int64_t heard_ms = kb_now_ns() // 1000000 + kb_load_i64(
        &worker.context.groups.clock_shift_ms)
    cdef Partition* touched[RUN_REQUESTS_MAX]
    cdef Partition* partition
    cdef CommitPlan* plan
    cdef int touched_count = 0
    cdef int i
    for i in range(count):
        partition = _commit_shard(&shards[i], now_ms, heard_ms)
        if partition != NULL:
            if kb_load_int(&partition.log.flush_due):
                _flush(worker, snapshot, &shards[i], partition)
            touched[touched_count] = partition
            touched_count += 1
        plan = shards[i].first
        while plan != NULL:
            if plan.accepted:
                _answer(worker, plan, partition)
            else:
                cold_push(worker, plan.request, REASON_GROUP)
            plan = plan.next
    worker_hand_over(worker)
    for i in range(touched_count):
        long_polls_wake(worker, snapshot, touched[i])
        partition_release(touched[i])
    worker_hand_over(worker)


cdef void offset_commit_run(
    HotWorker* worker, Snapshot* snapshot, Request* first,
) noexcept nogil:
    """Every OffsetCommit of a run, in order; those for Python go to the worker's cold list."""
    cdef Shards* groups = worker.context.groups
    cdef ShardPlans* shards = <ShardPlans*>arena_take(
        &worker.arena, sizeof(ShardPlans) * RUN_REQUESTS_MAX)
    cdef Request* request = first
    cdef Request* following
    cdef CommitPlan* plan
    cdef int64_t step_bytes = 0
    cdef int64_t now_ms = kb_wall_ms()
    cdef int count = 0
    if groups != NULL:
        now_ms += kb_load_i64(&groups.clock_shift_ms)
    while request != NULL:
        following = request.next
        request.next = NULL
        plan = NULL
        if shards != NULL:
            plan = _plan(worker, snapshot, request, now_ms)
        if plan == NULL:
            cold_push(worker, request, REASON_GROUP)
        elif not _is_set_aside(worker, plan):
            step_bytes += request.total_bytes
            _gather(shards, &count, plan)
        request = following
        if count > 0 and (
            request == NULL or count == RUN_REQUESTS_MAX or step_bytes >= STEP_BYTES
        ):
            if step_bytes >= STEP_BYTES:
                worker_give_up_role(worker)
            _finish(worker, snapshot, shards, count, now_ms)
            count = 0
            step_bytes = 0
