# cython: language_level=3
"""The answer of a produce: one piece of memory for all frames of a train.

As in Kafka, a refused batch is answered with its code, the start of the log if the batch came as
far as the log, and a message only where records of it are at fault (KIP-467) or nothing of the
request can be believed. acks=0 has no answer; an error in it closes the connection: there is no
other way to report it.

Protocol: ProduceResponse 3-13 (record errors from 8, flexible from 9, topic ids from 13).
Threads: the worker's own; no lock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport strlen

from kbroker.core._atomics cimport kb_add_i64
from kbroker.core._error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_ID_MAPPING,
    MESSAGE_TOO_LARGE,
    NOT_LEADER_OR_FOLLOWER,
    RECORD_LIST_TOO_LARGE,
)
from kbroker.core._figures cimport kb_count
from kbroker.log.engine._records cimport bad_record_text
from kbroker.log.engine._types cimport Batch
from kbroker.net._request cimport ANSWER_BYTES_MAX, answer_bytes, answer_reserve
from kbroker.net._types cimport (
    ACTION_CLOSE,
    ACTION_NO_OP,
    ACTION_SEND,
    CAUSE_MALFORMED,
    CAUSE_NO_MEMORY,
    CAUSE_SILENT_ERROR,
    Request,
)
from kbroker.protocol._cursor cimport (
    kb_put_u32,
    put_count,
    put_i16,
    put_i32,
    put_i64,
    put_no_tags,
    put_raw,
    put_string,
)
from kbroker.protocol._versions cimport PRODUCE_FLEXIBLE_SINCE
from kbroker.engine.worker._answers cimport worker_answer
from kbroker.engine.worker._charges cimport charge_produce, quotas_in_force
from kbroker.engine.worker._context cimport ERROR_CODES, HotWorker
from kbroker.engine.apis._leaders cimport (
    LEADER_TAG_BYTES,
    AskedPartition,
    nodes_bound,
    put_leader,
    put_nodes,
)
from kbroker.engine.apis._produce_plan cimport (
    TOPIC_IDS_FROM,
    ProduceFrame,
    ProducePartition,
    ProducePlan,
    ProduceTopic,
)

cdef enum:
    RECORD_ERRORS_FROM = 8
    LOG_START_FROM = 5
    LEADERS_FROM = 10
    CURRENT_LEADER_TAG = 0
    RECORD_ERROR_BYTES = 80       # place, text and length of one; bad_record_text is below 64


cdef void produce_fail_frame(ProduceFrame* frame) noexcept nogil:
    """An error of one batch that is the error of the whole request."""
    cdef Batch* batch
    cdef int32_t topic
    cdef int32_t number
    for topic in range(frame.topic_count):
        for number in range(frame.topics[topic].partition_count):
            batch = &frame.topics[topic].partitions[number].batch
            batch.error = frame.error
            if frame.error == CORRUPT_MESSAGE:
                batch.sends_message = 1
                batch.error_message = (
                    b"a batch of the request has no size or magic that there can be")
            elif frame.error == INVALID_PRODUCER_ID_MAPPING:
                batch.sends_message = 1
                batch.error_message = b"a request has transactional batches of one producer only"


cdef inline int _names_leader(Batch* batch, int version) noexcept nogil:
    return batch.error == NOT_LEADER_OR_FOLLOWER and version >= LEADERS_FROM


cdef size_t _answer_bound(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    # An upper bound of the answer's bytes: none from the frame on that did not parse.
    cdef ProduceFrame* frame = plan.frames
    cdef Batch* batch
    cdef size_t bound = 0
    cdef size_t nodes
    cdef int32_t topic
    cdef int32_t number
    while frame != NULL and not frame.malformed:
        bound += 32
        nodes = 0
        for topic in range(frame.topic_count):
            bound += 32 + <size_t>frame.topics[topic].name_length
            bound += 56 * <size_t>frame.topics[topic].partition_count
            for number in range(frame.topics[topic].partition_count):
                batch = &frame.topics[topic].partitions[number].batch
                if batch.error_message != NULL:
                    bound += strlen(batch.error_message) + 16
                    bound += RECORD_ERROR_BYTES * <size_t>batch.bad_record_count
                if _names_leader(batch, plan.request.api_version):
                    bound += LEADER_TAG_BYTES
                    nodes = nodes_bound(worker, &frame.leaders)
        bound += nodes
        frame = frame.next
    return bound


cdef uint8_t* _put_text(uint8_t* at, int flexible, const char* text) noexcept nogil:
    cdef int32_t length = -1
    if text != NULL:
        length = <int32_t>strlen(text)
    return put_string(at, flexible, <const uint8_t*>text, length)


cdef uint8_t* _put_leader(
    HotWorker* worker, uint8_t* at, ProduceFrame* frame, ProduceTopic* topic,
    ProducePartition* place,
) noexcept nogil:
    cdef AskedPartition asked
    asked.partition = place.partition
    asked.topic_id = topic.topic_id
    asked.name = topic.name
    asked.name_length = topic.name_length
    asked.index = place.index
    return put_leader(at, CURRENT_LEADER_TAG, worker, &asked, &frame.leaders)


cdef uint8_t* _put_partition(
    HotWorker* worker, uint8_t* at, ProduceFrame* frame, ProduceTopic* topic,
    ProducePartition* place, int version,
) noexcept nogil:
    cdef Batch* batch = &place.batch
    cdef int flexible = version >= PRODUCE_FLEXIBLE_SINCE
    cdef const char* message = NULL
    cdef int32_t i
    if batch.error != 0:
        if batch.sends_message or batch.bad_record_count:
            message = batch.error_message
    at = put_i32(at, place.index)
    at = put_i16(at, batch.error)
    at = put_i64(at, batch.base_offset)
    at = put_i64(at, batch.append_time_ms)
    if version >= LOG_START_FROM:
        at = put_i64(at, batch.log_start_offset)
    if version >= RECORD_ERRORS_FROM:
        at = put_count(at, flexible, batch.bad_record_count)
        for i in range(batch.bad_record_count):
            at = put_i32(at, batch.bad_records[i] >> 1)
            at = _put_text(at, flexible, bad_record_text(batch.bad_records[i]))
            at = put_no_tags(at, flexible)
        at = _put_text(at, flexible, message)
    if _names_leader(batch, version):
        return _put_leader(worker, at, frame, topic, place)
    return put_no_tags(at, flexible)


cdef uint8_t* _put_frame(
    HotWorker* worker, uint8_t* at, Request* request, ProduceFrame* frame,
) noexcept nogil:
    cdef int version = request.api_version
    cdef int flexible = version >= PRODUCE_FLEXIBLE_SINCE
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
            at = _put_partition(worker, at, frame, topic, &topic.partitions[i], version)
        at = put_no_tags(at, flexible)
    at = put_i32(at, request.throttle_ms)
    if frame.leaders.count:
        at = put_nodes(at, worker, request.channel, &frame.leaders)
    else:
        at = put_no_tags(at, flexible)
    kb_put_u32(start, <uint32_t>(at - start - 4))
    return at


cdef int produce_frame_ends(const ProduceFrame* frame) noexcept nogil:
    # It did not parse; or acks=0, where closing the connection is the only way to report an error.
    cdef int32_t topic
    cdef int32_t number
    if frame.malformed or frame.acks != 0:
        return frame.malformed
    for topic in range(frame.topic_count):
        for number in range(frame.topics[topic].partition_count):
            if frame.topics[topic].partitions[number].batch.error != 0:
                return 1
    return 0


cdef void _count_refused(HotWorker* worker, ProducePartition* place) noexcept nogil:
    cdef Batch* batch = &place.batch
    cdef int64_t rejected = 0
    if batch.error == MESSAGE_TOO_LARGE or batch.error == RECORD_LIST_TOO_LARGE:
        rejected = batch.length_bytes
    kb_count(&worker.produce_errors, 1)
    kb_count(&worker.rejected_bytes, rejected)
    if place.partition != NULL:
        kb_add_i64(&place.partition.refused_produces, 1)
        kb_add_i64(&place.partition.rejected_bytes, rejected)


cdef void _count(HotWorker* worker, ProduceFrame* frame) noexcept nogil:
    cdef ProducePartition* place
    cdef int32_t topic
    cdef int32_t number
    kb_count(&worker.produce_requests, 1)
    for topic in range(frame.topic_count):
        kb_count(&worker.produce_partitions, frame.topics[topic].partition_count)
        for number in range(frame.topics[topic].partition_count):
            place = &frame.topics[topic].partitions[number]
            if -1 <= place.batch.error < ERROR_CODES - 1:
                kb_count(&worker.produce_codes[place.batch.error + 1], 1)
            if place.batch.base_offset >= 0:  # it is in the log, whatever its followers have
                kb_count(&worker.produce_batches, 1)
                kb_count(&worker.produce_records, place.batch.record_count)
                kb_count(&worker.produce_bytes, place.batch.length_bytes)
            else:
                _count_refused(worker, place)


cdef void produce_answer(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    """Builds the answers of a request's frames in one piece and hands them to the worker."""
    cdef Request* request = plan.request
    cdef ProduceFrame* frame = plan.frames
    cdef size_t bound = _answer_bound(worker, plan)
    cdef uint8_t* head = NULL
    cdef uint8_t* at
    if quotas_in_force(worker):
        charge_produce(worker, request, frame != NULL and frame.acks == 0)
    if bound <= ANSWER_BYTES_MAX:
        head = answer_reserve(request, <uint32_t>bound, 1)
    at = head
    request.action = ACTION_NO_OP
    while frame != NULL and head != NULL:
        if not frame.malformed:
            _count(worker, frame)
        if produce_frame_ends(frame):
            request.action = ACTION_CLOSE
            request.cause = CAUSE_MALFORMED if frame.malformed else CAUSE_SILENT_ERROR
            break
        if frame.acks != 0:
            at = _put_frame(worker, at, request, frame)
            request.action = ACTION_SEND
        frame = frame.next
    if head == NULL:
        request.action = ACTION_CLOSE
        request.cause = CAUSE_NO_MEMORY
    elif at != head:
        answer_bytes(request, head, at - head)
    worker_answer(worker, request)
