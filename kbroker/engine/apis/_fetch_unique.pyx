# cython: language_level=3
"""A partition that a Fetch names more than once is read once, as it was named last.

So Apache Kafka has it: the request becomes a map, in which a name keeps its first place and gets
its last values. It is a bound as well: a fetch has one watch on a partition, and what an append
pays does not grow with how often a frame repeats itself.

A table over the partitions of one request, in the run's arena; keyed, so that their names do not
choose their places. Most clients send one topic with its partitions in order, which needs no table.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_keyed_number
from kbroker.core._table cimport Table, table_find_or_put, table_init
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport FetchPlan, FetchTarget


cdef int _in_order(FetchPlan* plan) noexcept nogil:
    # One topic, each partition after the one before.
    cdef FetchTarget* target
    cdef FetchTarget* before
    cdef int32_t i
    for i in range(1, plan.count):
        target = &plan.targets[i]
        before = &plan.targets[i - 1]
        if (
            target.name != before.name
            or target.topic_id != before.topic_id
            or target.index <= before.index
        ):
            return 0
    return 1


cdef inline int _is_same(const void* item, const void* other) noexcept nogil:
    cdef const FetchTarget* a = <const FetchTarget*>item
    cdef const FetchTarget* b = <const FetchTarget*>other
    if a.index != b.index:
        return 0
    if a.topic_id != NULL:
        return a.topic_id == b.topic_id or memcmp(a.topic_id, b.topic_id, 16) == 0
    return a.name == b.name or (
        a.name_length == b.name_length
        and memcmp(a.name, b.name, <size_t>a.name_length) == 0
    )


cdef uint64_t _topic_hash(uint64_t key, FetchTarget* target) noexcept nogil:
    if target.topic_id != NULL:
        return kb_keyed_hash(key, target.topic_id, 16)
    return kb_keyed_hash(key, target.name, <size_t>target.name_length)


cdef void _take_over(FetchTarget* first, FetchTarget* last) noexcept nogil:
    # What is asked of it. Its topic's bytes stay the first ones: neighbours share them.
    cdef uint8_t* topic_id = first.topic_id
    cdef uint8_t* name = first.name
    first[0] = last[0]
    first.topic_id = topic_id
    first.name = name


cdef int fetch_unique(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    """Drops what is named again from the targets of a plan just parsed; -1: no memory."""
    cdef uint64_t key = worker.context.hash_seed
    cdef uint64_t topic = 0
    cdef Table seen
    cdef int32_t i
    cdef FetchTarget* target
    cdef FetchTarget* first
    cdef uint8_t* name = NULL
    cdef uint8_t* topic_id = NULL
    if _in_order(plan):
        return 0
    if table_init(&seen, &worker.arena, plan.count) != 0:
        return -1
    for i in range(plan.count):
        target = &plan.targets[seen.count]
        target[0] = plan.targets[i]
        if i == 0 or target.name != name or target.topic_id != topic_id:
            name = target.name
            topic_id = target.topic_id
            topic = _topic_hash(key, target)
        first = <FetchTarget*>table_find_or_put(
            &seen, <uint32_t>kb_keyed_number(key, topic, <uint32_t>target.index), _is_same, target)
        if first != target:
            _take_over(first, target)
    plan.count = <int32_t>seen.count
    return 0
