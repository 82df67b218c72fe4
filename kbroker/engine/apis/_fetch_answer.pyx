# cython: language_level=3
"""The answer of a fetch: heads in one piece of memory, records as ranges of the log between them.

What goes into an incremental answer: partitions with data, with an error (or just rid of one), with
a diverging epoch, a better replica to read from, or whose high watermark or log start changed since
the last answer that had it (KIP-227). A partition that returned data moves to the end of its
session, and so does a missing one while others have to wait (`_fetch_session_targets`).
Called with the session's lock held, if there is one; the ranges' segments pass to the request and
are released when they have been sent.

Protocol: FetchResponse 4-18; records of a partition in error are empty, not null.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from kbroker.core._arena cimport arena_take
from kbroker.core._atomics cimport kb_add_i64
from kbroker.core._error_codes cimport (
    FENCED_LEADER_EPOCH, NO_ERROR, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID)
from kbroker.core._figures cimport kb_count
from kbroker.core._sync cimport kb_now_ns
from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._segment cimport segment_drop_reference, slice_release
from kbroker.log.engine._types cimport FileSlice, Segment
from kbroker.net._blocks cimport block_give
from kbroker.net._request cimport (
    ANSWER_BYTES_MAX,
    answer_bytes,
    answer_lent_bytes,
    answer_range,
    answer_reserve,
    answer_reset,
)
from kbroker.net._types cimport ACTION_CLOSE, ACTION_SEND, CAUSE_NO_MEMORY, Block, Request
from kbroker.protocol._cursor cimport (
    kb_put_u32,
    put_count,
    put_i16,
    put_i32,
    put_i64,
    put_no_tags,
    put_raw,
    put_string,
    put_uvarint,
)
from kbroker.replica._closest cimport NO_PREFERRED_REPLICA
from kbroker.replica._fetch_session cimport (
    session_note_missing_locked, session_to_tail_locked)
from kbroker.replica._partition cimport TO_LAST_STABLE, TO_LOG_END, partition_note_sent
from kbroker.engine.worker._answers cimport worker_answer
from kbroker.engine.worker._context cimport ERROR_CODES, HotWorker
from kbroker.engine.apis._fetch_plan cimport TOPIC_IDS_FROM, FetchPlan, FetchTarget
from kbroker.engine.worker._leader_throttle cimport leader_throttle_note
from kbroker.engine.apis._leaders cimport (
    LEADER_TAG_BYTES,
    AskedPartition,
    nodes_bound,
    put_leader,
    put_nodes,
)

cdef enum:
    LEADERS_FROM = 16
    CURRENT_LEADER_TAG = 1
    DIVERGING_EPOCH_TAG = 0
    DIVERGING_TAG_BYTES = 20
    HEAD_BYTES = 64               # size, header, throttle, error, session, counts, tags
    TARGET_HEAD_BYTES = 72        # of one partition and its topic, without name and records
    ABORTED_BYTES = 17            # one transaction


cdef void _release(void* keeper) noexcept nogil:
    segment_drop_reference(<Segment*>keeper)


cdef void fetch_drop_slices(FetchPlan* plan) noexcept nogil:
    """What was read is not answered after all."""
    cdef int32_t i
    for i in range(plan.count):
        slice_release(&plan.targets[i].slice)
        plan.targets[i].slice.length = 0
        if plan.targets[i].block != NULL:
            block_give(plan.targets[i].block)
            plan.targets[i].block = NULL


cdef void fetch_count_reads(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    """What was read, whether it is answered now or waited for."""
    cdef FetchTarget* target
    cdef int32_t i
    kb_count(&worker.fetch_partitions, plan.count)
    for i in range(plan.count):
        target = &plan.targets[i]
        if target.partition != NULL:
            kb_add_i64(&target.partition.fetches, 1)
            if target.error != NO_ERROR:
                kb_add_i64(&target.partition.refused_fetches, 1)


cdef int _belongs(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    if not plan.incremental or target.entry == NULL:
        return 1
    return (
        target.slice.length > 0
        or target.error != target.entry.sent_error
        or target.error != 0
        or target.diverges
        or target.preferred != NO_PREFERRED_REPLICA
        or target.high_watermark != target.entry.sent_high_watermark
        or target.log_start != target.entry.sent_log_start
    )


cdef int _is_in_answer(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    # An error of the whole answer leaves only those in it that have the same error.
    if plan.error == 0:
        return _belongs(plan, target)
    return target.error == plan.error


cdef int _same_topic(FetchTarget* a, FetchTarget* b) noexcept nogil:
    if a.topic_id != NULL:
        return memcmp(a.topic_id, b.topic_id, 16) == 0
    if a.name == b.name:
        return 1                  # of one entry of the request: its name may be long
    return a.name_length == b.name_length and memcmp(a.name, b.name, <size_t>a.name_length) == 0


cdef inline int _names_leader(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    return target.error != 0 and plan.version >= LEADERS_FROM and (
        target.error == NOT_LEADER_OR_FOLLOWER or target.error == FENCED_LEADER_EPOCH)


cdef uint8_t* _put_leader(
    HotWorker* worker, FetchPlan* plan, FetchTarget* target, uint8_t* at,
) noexcept nogil:
    cdef AskedPartition asked
    asked.partition = target.partition
    asked.topic_id = target.topic_id
    asked.name = target.name
    asked.name_length = target.name_length
    asked.index = target.index
    return put_leader(at, CURRENT_LEADER_TAG, worker, &asked, &plan.leaders)


cdef uint8_t* _put_divergence(uint8_t* at, FetchTarget* target) noexcept nogil:
    # The partition's tagged fields: one, of 13 bytes with the end of its own.
    at = put_uvarint(at, 1)
    at = put_uvarint(at, DIVERGING_EPOCH_TAG)
    at = put_uvarint(at, 13)
    at = put_i32(at, target.diverging_epoch)
    at = put_i64(at, target.diverging_end)
    return put_no_tags(at, 1)


cdef void _choose(
    HotWorker* worker, FetchPlan* plan, size_t* head_bytes, int* ranges, int32_t* topics,
) noexcept nogil:
    # Which targets are in the answer, and an upper bound of its memory.
    cdef FetchTarget* target
    cdef FetchTarget* before = NULL
    cdef size_t nodes = 0
    cdef int32_t i
    head_bytes[0] = HEAD_BYTES
    ranges[0] = 0
    topics[0] = 0
    for i in range(plan.count):
        target = &plan.targets[i]
        target.in_answer = _is_in_answer(plan, target)
        if not target.in_answer:
            continue
        head_bytes[0] += TARGET_HEAD_BYTES + ABORTED_BYTES * <size_t>target.aborted_count
        if _names_leader(plan, target):
            head_bytes[0] += LEADER_TAG_BYTES
            nodes = nodes_bound(worker, &plan.leaders)
        elif target.diverges:
            head_bytes[0] += DIVERGING_TAG_BYTES
        if target.slice.length > worker.context.inline_range_bytes:
            ranges[0] += 1
        else:
            head_bytes[0] += <size_t>target.slice.length
        if before == NULL or not _same_topic(before, target):
            topics[0] += 1
            head_bytes[0] += <size_t>target.name_length
        before = target
    head_bytes[0] += nodes


cdef inline int64_t _count_size(int flexible, uint32_t count) noexcept nogil:
    # Of an array's count, or of a length, which is one more in flexible versions.
    if not flexible:
        return 4
    return 1 if count < 0x7f else 2 if count < 0x3fff else 3 if count < 0x1fffff else 5


cdef int64_t _target_size(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    cdef int64_t size = 22 + plan.flexible + target.slice.length
    size += 8 if plan.version >= 5 else 0
    size += 4 if plan.version >= 11 else 0
    size += _count_size(plan.flexible, <uint32_t>target.aborted_count)
    size += (16 + plan.flexible) * <int64_t>target.aborted_count
    return size + _count_size(plan.flexible, <uint32_t>target.slice.length)


cdef int64_t fetch_answer_size(FetchPlan* plan) noexcept nogil:
    cdef FetchTarget* target
    cdef FetchTarget* before = NULL
    cdef int64_t size = 8 + plan.flexible + (6 if plan.version >= 7 else 0)
    cdef uint32_t topics = 0
    cdef uint32_t partitions = 0
    cdef int32_t i
    for i in range(plan.count):
        target = &plan.targets[i]
        if not _is_in_answer(plan, target):
            continue
        if before == NULL or not _same_topic(before, target):
            topics += 1
            size += _count_size(plan.flexible, partitions) if before != NULL else 0
            size += plan.flexible
            if plan.version >= TOPIC_IDS_FROM:
                size += 16
            else:
                size += target.name_length
                size += _count_size(1, <uint32_t>target.name_length) if plan.flexible else 2
            partitions = 0
        partitions += 1
        size += _target_size(plan, target)
        before = target
    size += _count_size(plan.flexible, partitions) if before != NULL else 0
    return size + _count_size(plan.flexible, topics)


cdef int _read_into(uint8_t* at, FileSlice* slice) noexcept nogil:
    # The whole slice from the page cache; -1: it could not be read.
    cdef int64_t done = 0
    cdef ssize_t got
    while done < slice.length:
        got = files.pread(
            slice.fd, at + done, <size_t>(slice.length - done), slice.position + done)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            return -1
        done += got
    return 0


cdef inline int _was_not_looked_at(FetchTarget* target) noexcept nogil:
    # Of a topic that was made again Kafka sees so only when it reads.
    return target.not_there and not target.made_again


cdef uint8_t* _put_aborted(uint8_t* at, FetchPlan* plan, const FetchTarget* target) noexcept nogil:
    cdef int32_t i
    at = put_count(at, plan.flexible, target.aborted_count)
    for i in range(target.aborted_count):
        at = put_i64(at, target.aborted[i].producer_id)
        at = put_i64(at, target.aborted[i].first_offset)
        at = put_no_tags(at, plan.flexible)
    return at


cdef uint8_t* _put_target_head(uint8_t* at, FetchPlan* plan, FetchTarget* target) noexcept nogil:
    at = put_i32(at, target.index)
    at = put_i16(at, target.error)
    at = put_i64(at, target.high_watermark)
    at = put_i64(at, target.last_stable)
    if plan.version >= 5:
        at = put_i64(at, target.log_start)
    # Null unless the reader asked for committed records, or where the log was not read.
    if (target.error != 0 and not _was_not_looked_at(target)
            or target.error == 0 and plan.isolation != TO_LAST_STABLE
            or target.diverges or target.preferred != NO_PREFERRED_REPLICA):
        at = put_count(at, plan.flexible, -1)
    else:
        at = _put_aborted(at, plan, target)
    if plan.version >= 11:
        at = put_i32(at, target.preferred)
    if plan.flexible:
        return put_uvarint(at, <uint32_t>(target.slice.length + 1))
    return put_i32(at, <int32_t>target.slice.length)


cdef void _remember(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    # The session notes the error and the offsets that this answer brings to the client.
    if plan.isolation == TO_LOG_END and target.error == 0:
        partition_note_sent(target.partition, plan.replica_id, target.high_watermark)
    if target.entry == NULL or plan.session == NULL:
        return
    target.entry.sent_error = target.error
    target.entry.sent_high_watermark = target.high_watermark
    target.entry.sent_log_start = target.log_start
    session_note_missing_locked(
        plan.session, target.entry, target.error != 0 and target.partition == NULL)
    if plan.incremental and (
        target.slice.length > 0 or (target.entry.missing and plan.leaves_out)
    ):
        session_to_tail_locked(plan.session, target.entry)


cdef int32_t _partitions_of(FetchPlan* plan, int32_t first) noexcept nogil:
    # How many targets in the answer follow each other with the topic of the first.
    cdef int32_t count = 0
    cdef int32_t i
    for i in range(first, plan.count):
        if not plan.targets[i].in_answer:
            continue
        if not _same_topic(&plan.targets[first], &plan.targets[i]):
            break
        count += 1
    return count


cdef uint8_t* _put_head(uint8_t* at, FetchPlan* plan, int32_t topics) noexcept nogil:
    at = put_i32(at, plan.request.correlation_id)
    at = put_no_tags(at, plan.flexible)
    at = put_i32(at, plan.request.throttle_ms)
    if plan.version >= 7:
        at = put_i16(at, plan.error)
        at = put_i32(at, plan.answer_session_id)
    return put_count(at, plan.flexible, topics)


cdef void _count(HotWorker* worker, FetchPlan* plan, FetchTarget* target) noexcept nogil:
    if -1 <= target.error < ERROR_CODES - 1:
        kb_count(&worker.fetch_codes[target.error + 1], 1)
    if target.error != 0:
        kb_count(&worker.fetch_errors, 1)
    elif target.slice.length > 0 and plan.replica_id >= 0:
        kb_count(&worker.replicated_bytes, target.slice.length)
        leader_throttle_note(
            &worker.context.leader_throttle, target.partition, plan.replica_id,
            target.slice.length, kb_now_ns())
    elif target.slice.length > 0:
        kb_count(&worker.fetch_bytes, target.slice.length)
        kb_add_i64(&target.partition.fetched_bytes, target.slice.length)


cdef void _put_range(Request* request, FetchTarget* target) noexcept nogil:
    # The segment's reference, or the block, passes to the request.
    cdef FileSlice* slice = &target.slice
    if slice.is_copied:
        answer_lent_bytes(request, slice.room, slice.length, sizeof(Block), target.block,
                          block_give)
        target.block = NULL
        slice_release(slice)
    else:
        answer_range(request, slice.fd, slice.position, slice.length, slice.cold, slice.segment,
                     _release)
        slice.segment = NULL


cdef uint8_t* _put_targets(
    HotWorker* worker, FetchPlan* plan, uint8_t* at, uint8_t** pending, int64_t* range_bytes,
) noexcept nogil:
    # Bytes from `pending` on are not yet a part. NULL: a slice could not be read.
    cdef Request* request = plan.request
    cdef FetchTarget* target
    cdef int32_t left = 0
    cdef int32_t i
    for i in range(plan.count):
        target = &plan.targets[i]
        if not target.in_answer:
            continue
        if left == 0:
            left = _partitions_of(plan, i)
            if plan.version >= TOPIC_IDS_FROM:
                at = put_raw(at, target.topic_id, 16)
            else:
                at = put_string(at, plan.flexible, target.name, target.name_length)
            at = put_count(at, plan.flexible, left)
        at = _put_target_head(at, plan, target)
        _count(worker, plan, target)
        _remember(plan, target)
        if target.slice.length > worker.context.inline_range_bytes:
            answer_bytes(request, pending[0], at - pending[0])
            range_bytes[0] += target.slice.length
            _put_range(request, target)
            pending[0] = at
        elif target.slice.length > 0:
            if target.slice.is_copied:
                memcpy(at, target.slice.room, <size_t>target.slice.length)
            elif _read_into(at, &target.slice) != 0:
                return NULL
            at += target.slice.length
            slice_release(&target.slice)
        if _names_leader(plan, target):
            at = _put_leader(worker, plan, target, at)
        elif target.diverges:
            at = _put_divergence(at, target)
        else:
            at = put_no_tags(at, plan.flexible)
        left -= 1
        if left == 0:
            at = put_no_tags(at, plan.flexible)
    return at


cdef inline int _place_of(FetchTarget* target) noexcept nogil:
    # In Kafka's answers: what was read, topics whose ids are not known, what else was not read.
    if not _was_not_looked_at(target):
        return 0
    return 1 if target.error == UNKNOWN_TOPIC_ID else 2


cdef void _move_back(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    cdef FetchTarget* moved = <FetchTarget*>arena_take(
        &worker.arena, sizeof(FetchTarget) * <size_t>plan.count)
    cdef int32_t count = 0
    cdef int32_t i
    cdef int place
    if moved == NULL:
        return
    for place in range(3):
        for i in range(plan.count):
            if _place_of(&plan.targets[i]) == place:
                moved[count] = plan.targets[i]
                count += 1
    plan.targets = moved


cdef void fetch_answer(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    """Builds the answer and hands it to the worker; the plan's slices are used up."""
    cdef Request* request = plan.request
    cdef size_t head_bytes
    cdef int ranges
    cdef int32_t topics
    cdef int64_t range_bytes = 0
    cdef uint8_t* start
    cdef uint8_t* pending
    cdef uint8_t* at = NULL
    if plan.not_there_count > 0 and plan.count > 1:
        _move_back(worker, plan)
    _choose(worker, plan, &head_bytes, &ranges, &topics)
    start = NULL
    if head_bytes <= ANSWER_BYTES_MAX:
        start = answer_reserve(request, <uint32_t>head_bytes, 2 * ranges + 1)
    if start != NULL:
        pending = start
        at = _put_head(start + 4, plan, topics)
        at = _put_targets(worker, plan, at, &pending, &range_bytes)
    fetch_drop_slices(plan)
    if at == NULL:
        answer_reset(request)     # no part of it may leave
        request.action = ACTION_CLOSE
        request.cause = CAUSE_NO_MEMORY
        worker_answer(worker, request)
        return
    if plan.leaders.count:
        at = put_nodes(at, worker, request.channel, &plan.leaders)
    else:
        at = put_no_tags(at, plan.flexible)
    kb_put_u32(start, <uint32_t>(at - start - 4 + range_bytes))
    if at > pending:              # before flexible versions it may end with a range
        answer_bytes(request, pending, at - pending)
    request.action = ACTION_SEND
    if plan.session != NULL:
        plan.session.answered_bytes = plan.read_bytes
    if -1 <= plan.error < ERROR_CODES - 1:
        kb_count(&worker.fetch_codes[plan.error + 1], 1)
    worker_answer(worker, request)
