# cython: language_level=3
"""A partition that a Produce names more than once is written and answered once, as named last.

As in Apache Kafka, the request becomes a map, in which a name keeps its first place and gets its
last records. A topic that is named again is one topic, at its first place, and a topic without
partitions is not answered at all. Dropped records are neither validated nor unpacked.

Tables over the names of one frame, in the run's arena; keyed, so that names do not choose their
places. One topic needs none for its name, partitions in order none for their numbers.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kbroker.core._arena cimport arena_take
from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_keyed_number
from kbroker.core._table cimport Table, table_find_or_put, table_init
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._produce_plan cimport ProduceFrame, ProducePartition, ProduceTopic


# --- topics --------------------------------------------------------------------------------------

cdef inline int _is_same_topic(const void* item, const void* other) noexcept nogil:
    cdef const ProduceTopic* a = <const ProduceTopic*>item
    cdef const ProduceTopic* b = <const ProduceTopic*>other
    if a.topic_id != NULL:
        return memcmp(a.topic_id, b.topic_id, 16) == 0
    return a.name_length == b.name_length and memcmp(a.name, b.name, <size_t>a.name_length) == 0


cdef uint64_t _topic_hash(uint64_t key, ProduceTopic* topic) noexcept nogil:
    if topic.topic_id != NULL:
        return kb_keyed_hash(key, topic.topic_id, 16)
    return kb_keyed_hash(key, topic.name, <size_t>topic.name_length)


cdef int _join_topics(HotWorker* worker, ProduceFrame* frame) noexcept nogil:
    # All partitions of a name to the first topic that has it; -1: no memory.
    cdef uint64_t key = worker.context.hash_seed
    cdef ProduceTopic* topic
    cdef ProduceTopic* first
    cdef Table firsts
    cdef int32_t* totals          # partitions of all topics of that name, at the first
    cdef int32_t* first_of        # the place of the first of its name
    cdef int32_t i
    totals = <int32_t*>arena_take(&worker.arena, sizeof(int32_t) * <size_t>frame.topic_count)
    first_of = <int32_t*>arena_take(&worker.arena, sizeof(int32_t) * <size_t>frame.topic_count)
    if (table_init(&firsts, &worker.arena, frame.topic_count) != 0 or totals == NULL
            or first_of == NULL):
        return -1
    for i in range(frame.topic_count):
        topic = &frame.topics[i]
        first = <ProduceTopic*>table_find_or_put(
            &firsts, <uint32_t>_topic_hash(key, topic), _is_same_topic, topic)
        first_of[i] = <int32_t>(first - frame.topics)
        totals[first_of[i]] += topic.partition_count
    return _gather_partitions(worker, frame, first_of, totals)


cdef int _gather_partitions(
    HotWorker* worker, ProduceFrame* frame, int32_t* first_of, int32_t* totals,
) noexcept nogil:
    # The partitions of a topic that is named again follow those of its first entry.
    cdef ProduceTopic* topic
    cdef ProduceTopic* first
    cdef ProducePartition* partitions
    cdef int32_t i
    for i in range(frame.topic_count):
        topic = &frame.topics[i]
        first = &frame.topics[first_of[i]]
        if first == topic and totals[i] > topic.partition_count:
            partitions = <ProducePartition*>arena_take(
                &worker.arena, sizeof(ProducePartition) * <size_t>totals[i])
            if partitions == NULL:
                return -1
            memcpy(
                partitions, topic.partitions,
                sizeof(ProducePartition) * <size_t>topic.partition_count)
            topic.partitions = partitions
        elif first != topic:
            memcpy(
                &first.partitions[first.partition_count], topic.partitions,
                sizeof(ProducePartition) * <size_t>topic.partition_count)
            first.partition_count += topic.partition_count
            topic.partition_count = 0
    return 0


cdef void _drop_empty_topics(ProduceFrame* frame) noexcept nogil:
    cdef int32_t kept = 0
    cdef int32_t i
    for i in range(frame.topic_count):
        if frame.topics[i].partition_count == 0:
            continue
        if kept != i:
            frame.topics[kept] = frame.topics[i]
        kept += 1
    frame.topic_count = kept


# --- partitions ----------------------------------------------------------------------------------

cdef int _in_order(ProduceTopic* topic) noexcept nogil:
    cdef int32_t i
    for i in range(1, topic.partition_count):
        if topic.partitions[i].index <= topic.partitions[i - 1].index:
            return 0
    return 1


cdef inline int _is_same_partition(const void* item, const void* other) noexcept nogil:
    return (<const ProducePartition*>item).index == (<const ProducePartition*>other).index


cdef int _keep_last(HotWorker* worker, ProduceTopic* topic) noexcept nogil:
    cdef uint64_t key = worker.context.hash_seed
    cdef Table seen
    cdef ProducePartition* place
    cdef ProducePartition* first
    cdef int32_t i
    if table_init(&seen, &worker.arena, topic.partition_count) != 0:
        return -1
    for i in range(topic.partition_count):
        place = &topic.partitions[seen.count]
        place[0] = topic.partitions[i]
        first = <ProducePartition*>table_find_or_put(
            &seen, <uint32_t>kb_keyed_number(key, 0, <uint32_t>place.index), _is_same_partition,
            place)
        first[0] = place[0]
    topic.partition_count = <int32_t>seen.count
    return 0


cdef int produce_unique(HotWorker* worker, ProduceFrame* frame) noexcept nogil:
    cdef int32_t i
    if frame.topic_count > 1 and _join_topics(worker, frame) != 0:
        return -1
    _drop_empty_topics(frame)
    for i in range(frame.topic_count):
        if not _in_order(&frame.topics[i]) and _keep_last(worker, &frame.topics[i]) != 0:
            return -1
    return 0
