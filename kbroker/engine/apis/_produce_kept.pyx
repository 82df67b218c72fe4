# cython: language_level=3
"""A produce's plan that outlives its run: what the answer says, without frame and records.

A plan lives in the arena of the run and points into the request's frame. One that has to wait is
copied into a single allocation: its frames, topics, partitions and names, in their order, with the
result of each batch so far. The records are in the log by then, so nothing here points to them.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kbroker.log.engine._types cimport Batch
from kbroker.replica._partition cimport Partition, partition_acquire, partition_release
from kbroker.engine.apis._produce_plan cimport (
    PlanWalk,
    ProduceFrame,
    ProducePartition,
    ProducePlan,
    ProduceTopic,
    plan_next,
)

cdef enum:
    TOPIC_ID_BYTES = 16


# --- partitions ----------------------------------------------------------------------------------

cdef void produce_acquire_partitions(ProducePlan* plan) noexcept nogil:
    _each_partition(plan, partition_acquire)


cdef void produce_release_partitions(ProducePlan* plan) noexcept nogil:
    _each_partition(plan, partition_release)


cdef void _each_partition(
    ProducePlan* plan, void (*does)(Partition*) noexcept nogil
) noexcept nogil:
    cdef PlanWalk walk = PlanWalk(plan.frames, 0, 0)
    cdef ProducePartition* place = plan_next(&walk)
    while place != NULL:
        if place.partition != NULL:
            does(place.partition)
        place = plan_next(&walk)


# --- the copy ------------------------------------------------------------------------------------

cdef inline size_t _rounded(size_t count) noexcept nogil:
    return (count + 7) & ~<size_t>7


cdef inline size_t _name_bytes(const ProduceTopic* topic) noexcept nogil:
    return TOPIC_ID_BYTES if topic.topic_id != NULL else <size_t>topic.name_length


cdef size_t produce_kept_bytes(const ProducePlan* plan) noexcept nogil:
    cdef const ProduceFrame* frame = plan.frames
    cdef const ProduceTopic* topic
    cdef size_t total = _rounded(sizeof(ProducePlan))
    cdef int32_t at
    cdef int32_t number
    while frame != NULL:
        total += _rounded(sizeof(ProduceFrame))
        if frame.malformed:       # the connection ends after the answers of those before it
            break
        total += _rounded(sizeof(ProduceTopic) * <size_t>frame.topic_count)
        for at in range(frame.topic_count):
            topic = &frame.topics[at]
            total += _rounded(_name_bytes(topic))
            total += _rounded(sizeof(ProducePartition) * <size_t>topic.partition_count)
            for number in range(topic.partition_count):
                total += _rounded(
                    sizeof(int32_t) * <size_t>topic.partitions[number].batch.bad_record_count)
        frame = frame.next
    return total


cdef void* _copied(uint8_t** at, const void* source, size_t count) noexcept nogil:
    cdef uint8_t* place = at[0]
    if source != NULL and count:
        memcpy(place, source, count)
    at[0] += _rounded(count)
    return place


cdef void _keep_topic(uint8_t** at, ProduceTopic* topic) noexcept nogil:
    cdef Batch* batch
    cdef int32_t number
    if topic.topic_id != NULL:
        topic.topic_id = <uint8_t*>_copied(at, topic.topic_id, TOPIC_ID_BYTES)
    else:
        topic.name = <uint8_t*>_copied(at, topic.name, <size_t>topic.name_length)
    topic.partitions = <ProducePartition*>_copied(
        at, topic.partitions, sizeof(ProducePartition) * <size_t>topic.partition_count)
    topic.entry = NULL
    for number in range(topic.partition_count):
        batch = &topic.partitions[number].batch
        batch.data = NULL
        batch.next = NULL
        batch.arena = NULL
        batch.unpacked_left = NULL
        batch.bad_records = <int32_t*>_copied(
            at, batch.bad_records, sizeof(int32_t) * <size_t>batch.bad_record_count)


cdef ProducePlan* produce_keep(ProducePlan* plan, size_t size_bytes) noexcept nogil:
    cdef uint8_t* at = <uint8_t*>calloc(1, size_bytes)
    cdef ProduceFrame* frame = plan.frames
    cdef ProduceFrame** place
    cdef ProduceFrame* copy
    cdef ProducePlan* kept
    cdef int32_t number
    if at == NULL:
        return NULL
    kept = <ProducePlan*>_copied(&at, plan, sizeof(ProducePlan))
    kept.next = NULL
    kept.frames = NULL
    kept.slow = NULL
    place = &kept.frames
    while frame != NULL:
        copy = <ProduceFrame*>_copied(&at, frame, sizeof(ProduceFrame))
        copy.next = NULL
        copy.transactional_id = NULL
        place[0] = copy
        place = &copy.next
        if frame.malformed:
            copy.topics = NULL
            copy.topic_count = 0
            break
        copy.topics = <ProduceTopic*>_copied(
            &at, frame.topics, sizeof(ProduceTopic) * <size_t>frame.topic_count)
        for number in range(copy.topic_count):
            _keep_topic(&at, &copy.topics[number])
        frame = frame.next
    produce_acquire_partitions(kept)
    return kept


cdef void produce_kept_free(ProducePlan* kept) noexcept nogil:
    produce_release_partitions(kept)
    free(kept)
