# cython: language_level=3
"""What a Produce asks the authorizer: WRITE on its topics, and on the id of its transactions.

As Apache Kafka: the transactional id is asked for only where a batch is transactional, and without
the right no batch is written. Then each topic is asked for, before it is looked for: a client that
may not write it does not learn whether it exists. A topic that is named by an id that is not known
has no name to ask for. A batch that is idempotent needs no right of its own.

The verdict is one for each topic of a frame (`_verdicts`). If one is not known, nothing of the
request is done: it goes to Python, which decides and queues it once more (`server/hot_rights.py`).
A request that Python looks into for another reason takes its verdicts with it; a topic that it
names by an id that was not known then is not known for it.
"""

from libc.stdint cimport int16_t, int32_t, uint8_t

from kbroker.core._error_codes cimport (
    TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION)
from kbroker.net._types cimport ACTION_CLOSE, CAUSE_NO_MEMORY
from kbroker.engine.worker._answers cimport cold_push, worker_answer
from kbroker.engine.worker._asked_rights cimport (
    AskedRights, asked_rights_add_known, asked_rights_keep, asked_rights_new, right_to)
from kbroker.engine.worker._context cimport REASON_RIGHTS
from kbroker.engine.worker._verdicts cimport (
    OPERATION_WRITE, RESOURCE_TOPIC, RESOURCE_TRANSACTIONAL_ID, VERDICT_ALLOWED, VERDICT_DENIED,
    VERDICT_UNKNOWN, asker_of)
from kbroker.engine.apis._produce_plan cimport TOPIC_IDS_FROM


cdef void produce_begin_rights(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    plan.asks = 1
    asker_of(worker.context.verdicts, plan.request, &plan.asker)


cdef inline const uint8_t* _name_of(const ProduceTopic* topic, int32_t* length) noexcept nogil:
    # NULL: it has none, or did not parse.
    if topic.entry != NULL:
        length[0] = topic.entry.key.name_length
        return topic.entry.key.name
    length[0] = topic.name_length
    return topic.name


cdef int16_t produce_refused(
    HotWorker* worker, ProducePlan* plan, const ProduceTopic* topic, int16_t otherwise
) noexcept nogil:
    cdef int32_t length = 0
    cdef const uint8_t* name = _name_of(topic, &length)
    cdef int verdict
    if name == NULL:
        return otherwise
    verdict = right_to(worker.context, plan.request, &plan.asker, OPERATION_WRITE, RESOURCE_TOPIC,
                       name, length, 1)
    if verdict == VERDICT_ALLOWED:
        return otherwise
    if verdict == VERDICT_DENIED:
        return TOPIC_AUTHORIZATION_FAILED
    plan.unknown_rights = 1
    if plan.request.api_version >= TOPIC_IDS_FROM:
        return UNKNOWN_TOPIC_ID
    return UNKNOWN_TOPIC_OR_PARTITION


cdef int produce_may_use_id(
    HotWorker* worker, ProducePlan* plan, ProduceFrame* frame
) noexcept nogil:
    cdef int verdict = right_to(
        worker.context, plan.request, &plan.asker, OPERATION_WRITE, RESOURCE_TRANSACTIONAL_ID,
        frame.transactional_id, frame.transactional_id_length, 1)
    frame.asks_id = 1
    if verdict == VERDICT_UNKNOWN:
        plan.unknown_rights = 1
    return verdict == VERDICT_ALLOWED


cdef AskedRights* _asked(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    # All that it asks for; NULL: no memory.
    cdef const ProduceFrame* frame = plan.frames
    cdef const ProduceTopic* topic
    cdef const uint8_t* name
    cdef AskedRights* asked
    cdef int32_t length = 0
    cdef int32_t count = 0
    cdef size_t names_bytes = 0
    cdef int32_t number
    while frame != NULL:
        count += 1 + frame.topic_count
        names_bytes += <size_t>max(frame.transactional_id_length, 0)
        for number in range(frame.topic_count):
            if _name_of(&frame.topics[number], &length) != NULL:
                names_bytes += <size_t>length
        frame = frame.next
    asked = asked_rights_new(count, names_bytes, worker.context.hash_seed)
    frame = plan.frames
    while frame != NULL and asked != NULL:
        if frame.asks_id:
            asked_rights_add_known(
                asked, worker.context, plan.request, &plan.asker, OPERATION_WRITE,
                RESOURCE_TRANSACTIONAL_ID, frame.transactional_id, frame.transactional_id_length)
        for number in range(frame.topic_count):
            topic = &frame.topics[number]
            name = _name_of(topic, &length)
            if name != NULL:
                asked_rights_add_known(
                    asked, worker.context, plan.request, &plan.asker, OPERATION_WRITE,
                    RESOURCE_TOPIC, name, length)
        frame = frame.next
    return asked


cdef void produce_ask_rights(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    plan.reason = REASON_RIGHTS
    _leave_with(worker, plan, _asked(worker, plan))


cdef void produce_leave_to_python(HotWorker* worker, ProducePlan* plan) noexcept nogil:
    if plan.asks and plan.request.rights == NULL:
        _leave_with(worker, plan, _asked(worker, plan))
    else:
        cold_push(worker, plan.request, plan.reason)


cdef void _leave_with(HotWorker* worker, ProducePlan* plan, AskedRights* asked) noexcept nogil:
    if asked != NULL:
        asked_rights_keep(plan.request, asked)
        cold_push(worker, plan.request, plan.reason)
        return
    plan.request.action = ACTION_CLOSE
    plan.request.cause = CAUSE_NO_MEMORY
    worker_answer(worker, plan.request)
