# cython: language_level=3
"""Committed offsets in the form in which OffsetFetch answers them, written under the shard's lock.

A topic's partitions are asked as the bytes of the request, and answered as bytes of the answer, so
that a group of a thousand partitions makes no thousand objects. What has not been committed is
offset -1 with no text and no error; so is what was committed for another topic of the same name.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kbroker.coordinator.group._offset_records cimport Text
from kbroker.coordinator.group._offsets cimport (
    entry_find_locked,
    entry_metadata,
    topic_find_locked,
)
from kbroker.coordinator.group._structs cimport Group, GroupTopic, OffsetEntry
from kbroker.protocol._cursor cimport (
    kb_get_u32,
    put_count,
    put_i16,
    put_i32,
    put_i64,
    put_no_tags,
    put_string,
)

cdef enum:
    PARTITION_BYTES_MAX = 4 + 8 + 4 + 5 + 2 + 1
    COUNT_BYTES_MAX = 5


cdef inline OffsetEntry* _entry(GroupTopic* topic, const uint8_t* index) noexcept nogil:
    if topic == NULL:
        return NULL
    return entry_find_locked(topic, <int32_t>kb_get_u32(index))


cdef inline int64_t _bound(const OffsetEntry* entry) noexcept nogil:
    if entry == NULL:
        return PARTITION_BYTES_MAX
    return PARTITION_BYTES_MAX + entry_metadata(entry).length


cdef uint8_t* _put(
    uint8_t* at, const FetchForm* form, int32_t index, const OffsetEntry* entry,
) noexcept nogil:
    cdef Text metadata
    metadata.at = NULL
    metadata.length = 0
    if entry != NULL:
        metadata = entry_metadata(entry)
    at = put_i32(at, index)
    at = put_i64(at, entry.offset if entry != NULL else -1)
    if form.leader_epochs:
        at = put_i32(at, entry.leader_epoch if entry != NULL else -1)
    at = put_string(at, form.flexible, metadata.at, metadata.length)
    at = put_i16(at, 0)
    return put_no_tags(at, form.flexible)


cdef int _fetch_topic(
    Group* group, const FetchForm* form, FetchedTopic* fetched,
) noexcept nogil:
    cdef GroupTopic* topic = NULL
    cdef int64_t bound = COUNT_BYTES_MAX
    cdef uint8_t* at
    cdef int32_t i
    if group != NULL:
        topic = topic_find_locked(group, fetched.name.at, fetched.name.length)
    if topic != NULL and topic.has_id and fetched.has_id and (
        memcmp(topic.topic_id, fetched.topic_id, 16) != 0
    ):
        topic = NULL              # of another topic, which had this name and was deleted
    for i in range(fetched.count):
        bound += _bound(_entry(topic, fetched.indexes + 4 * i))
    fetched.data = <uint8_t*>malloc(<size_t>bound)
    if fetched.data == NULL:
        return -1
    at = put_count(fetched.data, form.flexible, fetched.count)
    for i in range(fetched.count):
        at = _put(
            at, form, <int32_t>kb_get_u32(fetched.indexes + 4 * i),
            _entry(topic, fetched.indexes + 4 * i))
    fetched.length = at - fetched.data
    return 0


cdef int _fetch_whole_topic(
    const GroupTopic* topic, const FetchForm* form, FetchedTopic* fetched,
) noexcept nogil:
    cdef int64_t bound = COUNT_BYTES_MAX
    cdef uint8_t* at
    cdef int32_t i
    for i in range(topic.count):
        bound += _bound(&topic.entries[i])
    # The name behind it, since the topic may go when the lock is let go of.
    fetched.data = <uint8_t*>malloc(<size_t>(bound + topic.name_length))
    if fetched.data == NULL:
        return -1
    at = put_count(fetched.data, form.flexible, topic.count)
    for i in range(topic.count):
        at = _put(at, form, topic.entries[i].partition, &topic.entries[i])
    fetched.length = at - fetched.data
    fetched.name.at = at
    fetched.name.length = topic.name_length
    fetched.has_id = topic.has_id
    memcpy(fetched.topic_id, topic.topic_id, 16)
    for i in range(topic.name_length):
        at[i] = topic.name[i]
    return 0


cdef int fetch_locked(Fetched* fetched, Group* group) noexcept nogil:
    cdef uint32_t place
    cdef int32_t i
    if not fetched.all_topics:
        for i in range(fetched.count):
            if _fetch_topic(group, &fetched.form, &fetched.topics[i]) != 0:
                return -1
        return 0
    if group == NULL or group.topics == NULL:
        return 0
    fetched.topics = <FetchedTopic*>calloc(<size_t>group.topic_count + 1, sizeof(FetchedTopic))
    if fetched.topics == NULL:
        return -1
    for place in range(group.topic_mask + 1):
        if group.topics[place] == NULL or group.topics[place].count == 0:
            continue
        if _fetch_whole_topic(
            group.topics[place], &fetched.form, &fetched.topics[fetched.count],
        ) != 0:
            return -1
        fetched.count += 1
    return 0


cdef void fetched_free(Fetched* fetched) noexcept nogil:
    cdef int32_t i
    if fetched.topics == NULL:
        return
    for i in range(fetched.count):
        free(fetched.topics[i].data)
    free(fetched.topics)
    fetched.topics = NULL
