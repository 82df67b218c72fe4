# cython: language_level=3
"""Topics by name and by id: one thread fills an index, then many read it; inline, no module.

An entry begins with its TopicKey, and keeps its name for as long as the index lists it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from kbroker.core._name_hash cimport name_hash
from kbroker.core._table cimport Table, table_free, table_init, table_place, table_put

cdef enum:
    ROOM_MIN = 32                 # topics: few of them hardly ever share a place


cdef struct TopicKey:
    uint32_t name_hash
    uint8_t topic_id[16]
    int32_t name_length
    uint8_t* name


cdef struct TopicIndex:
    Table by_name
    Table by_id


# The name is copied to `memory`.
cdef inline void topic_key_init(
    TopicKey* key, uint8_t* memory, const uint8_t* name, int32_t length, const uint8_t* topic_id
) noexcept nogil:
    memcpy(memory, name, <size_t>length)
    memcpy(key.topic_id, topic_id, 16)
    key.name = memory
    key.name_length = length
    key.name_hash = name_hash(name, length)


# Room for so many. -1: no memory; to be freed all the same.
cdef inline int topic_index_init(TopicIndex* index, int64_t count) noexcept nogil:
    count = max(count, <int64_t>ROOM_MIN)
    return table_init(&index.by_name, NULL, count) | table_init(&index.by_id, NULL, count)


cdef inline void topic_index_free(TopicIndex* index) noexcept nogil:
    table_free(&index.by_name)
    table_free(&index.by_id)


cdef inline void topic_index_put(TopicIndex* index, TopicKey* topic) noexcept nogil:
    table_put(&index.by_name, topic, topic.name_hash)
    table_put(&index.by_id, topic, name_hash(topic.topic_id, 16))


cdef inline int _is_named(const void* item, const void* key) noexcept nogil:
    cdef const TopicKey* topic = <const TopicKey*>item
    cdef const TopicKey* wanted = <const TopicKey*>key
    return (
        topic.name_hash == wanted.name_hash
        and topic.name_length == wanted.name_length
        and memcmp(topic.name, wanted.name, <size_t>wanted.name_length) == 0
    )


cdef inline int _has_hash(const void* item, const void* key) noexcept nogil:
    return (<const TopicKey*>item).name_hash == (<const uint32_t*>key)[0]


cdef inline int _has_id(const void* item, const void* key) noexcept nogil:
    return memcmp((<const TopicKey*>item).topic_id, key, 16) == 0


# The place in `by_name`; it is NULL there if no topic has this name. So in `by_id`.
cdef inline void** topic_place_by_name(
    const TopicIndex* index, const uint8_t* name, int32_t length
) noexcept nogil:
    cdef TopicKey wanted
    wanted.name = <uint8_t*>name
    wanted.name_length = length
    wanted.name_hash = name_hash(name, length)
    return table_place(&index.by_name, wanted.name_hash, _is_named, &wanted)


cdef inline void** topic_place_by_id(
    const TopicIndex* index, const uint8_t* topic_id
) noexcept nogil:
    return table_place(&index.by_id, name_hash(topic_id, 16), _has_id, topic_id)


cdef inline void** topic_place_by_hash(const TopicIndex* index, uint32_t wanted) noexcept nogil:
    return table_place(&index.by_name, wanted, _has_hash, &wanted)
