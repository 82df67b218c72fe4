# cython: language_level=3
"""Committed offsets in the form in which OffsetFetch answers them, written under the shard's lock.

A topic's partitions are asked as the bytes of the request, and answered as bytes of the answer, so
that a group of a thousand partitions makes no thousand objects. A partition without a commit has
offset -1, no text and no error; so has one whose commit was for another topic of the same name. A
commit above the high watermark may still be lost: the one before it is answered. A partition
with an undecided offset of a transaction has offset -1 and UNSTABLE_OFFSET_COMMIT.

A partition takes four bytes to name and its metadata may be 4 KB. It is answered as often as it is
named, within a bound for repeated metadata; beyond it a partition has an error.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kbroker.coordinator.group._offsets cimport (
    entry_find_locked,
    entry_metadata,
    entry_replicated,
    topic_find_locked,
)
from kbroker.coordinator.group._structs cimport Group, GroupTopic, OffsetEntry
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.core._error_codes cimport INVALID_REQUEST, UNSTABLE_OFFSET_COMMIT
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


cdef inline const OffsetEntry* _entry(
    GroupTopic* topic, const uint8_t* index, const FetchForm* form,
) noexcept nogil:
    if topic == NULL:
        return NULL
    return entry_replicated(
        entry_find_locked(topic, <int32_t>kb_get_u32(index)), form.high_watermark)


cdef inline int _is_unstable(const FetchedTopic* topic, int32_t i) noexcept nogil:
    return topic.unstable != NULL and topic.unstable[i]


cdef inline const OffsetEntry* _entry_at(
    GroupTopic* topic, const FetchedTopic* fetched, int32_t i, const FetchForm* form,
) noexcept nogil:
    # Of the partition that is named there.
    if _is_unstable(fetched, i):
        return NULL
    return _entry(topic, fetched.indexes + 4 * i, form)


cdef inline int64_t _text_length(const OffsetEntry* entry) noexcept nogil:
    return 0 if entry == NULL else entry_metadata(entry).length


cdef uint8_t* _put(
    uint8_t* at, const FetchForm* form, int32_t index, const OffsetEntry* entry, int16_t error,
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
    at = put_i16(at, error)
    return put_no_tags(at, form.flexible)


cdef GroupTopic* _topic(Group* group, const FetchedTopic* fetched) noexcept nogil:
    cdef GroupTopic* topic = NULL
    if group != NULL:
        topic = topic_find_locked(group, fetched.name.at, fetched.name.length)
    if topic != NULL and topic.has_id and fetched.has_id and (
        memcmp(topic.topic_id, fetched.topic_id, 16) != 0
    ):
        return NULL               # of another topic, which had this name and was deleted
    return topic


cdef int _fetch_topic(
    Group* group, const FetchForm* form, FetchedTopic* fetched, int64_t* texts_left,
) noexcept nogil:
    cdef GroupTopic* topic = _topic(group, fetched)
    cdef int64_t bound = COUNT_BYTES_MAX + <int64_t>PARTITION_BYTES_MAX * fetched.count
    cdef int64_t texts_bytes = 0
    cdef int64_t length
    cdef const OffsetEntry* entry
    cdef uint8_t* at
    cdef int16_t error
    cdef int32_t i
    for i in range(fetched.count):
        texts_bytes += _text_length(_entry_at(topic, fetched, i, form))
    fetched.data = <uint8_t*>malloc(<size_t>(bound + min(texts_bytes, texts_left[0])))
    if fetched.data == NULL:
        return -1
    at = put_count(fetched.data, form.flexible, fetched.count)
    for i in range(fetched.count):
        entry = _entry_at(topic, fetched, i, form)
        length = _text_length(entry)
        error = UNSTABLE_OFFSET_COMMIT if _is_unstable(fetched, i) else 0
        if length > texts_left[0]:
            entry = NULL
            error = INVALID_REQUEST
        else:
            texts_left[0] -= length
        at = _put(at, form, <int32_t>kb_get_u32(fetched.indexes + 4 * i), entry, error)
    fetched.length = at - fetched.data
    return 0


cdef int64_t _texts_asked(const Fetched* fetched, Group* group) noexcept nogil:
    cdef GroupTopic* topic
    cdef int64_t length = 0
    cdef int32_t i, j
    for i in range(fetched.count):
        topic = _topic(group, &fetched.topics[i])
        if topic == NULL:
            continue
        for j in range(fetched.topics[i].count):
            length += _text_length(_entry_at(topic, &fetched.topics[i], j, &fetched.form))
    return length


cdef int64_t _texts_held(const Group* group, const FetchForm* form) noexcept nogil:
    cdef int64_t length = 0
    cdef uint32_t place
    cdef int32_t i
    if group == NULL or group.topics == NULL:
        return 0
    for place in range(group.topic_mask + 1):
        if group.topics[place] != NULL:
            for i in range(group.topics[place].count):
                length += _text_length(
                    entry_replicated(&group.topics[place].entries[i], form.high_watermark))
    return length


cdef int _fetch_named(Fetched* fetched, Group* group) noexcept nogil:
    cdef int64_t asked = _texts_asked(fetched, group)
    cdef int64_t once = 0
    cdef int64_t left
    cdef int32_t i
    if asked > fetched.texts_again_max and not fetched.named_before:
        once = _texts_held(group, &fetched.form)  # all of it, at most: so much is no repetition
    left = fetched.texts_again_max + once
    for i in range(fetched.count):
        if _fetch_topic(group, &fetched.form, &fetched.topics[i], &left) != 0:
            return -1
    fetched.texts = max(0, fetched.texts_again_max - left)
    return 0


cdef int _fetch_whole_topic(
    const GroupTopic* topic, const FetchForm* form, FetchedTopic* fetched,
) noexcept nogil:
    # 1: some of its offsets may be answered; -1: no memory.
    cdef int64_t bound = COUNT_BYTES_MAX
    cdef const OffsetEntry* entry
    cdef uint8_t* at
    cdef int32_t count = 0
    cdef int32_t i
    for i in range(topic.count):
        entry = entry_replicated(&topic.entries[i], form.high_watermark)
        if entry != NULL:
            bound += PARTITION_BYTES_MAX + _text_length(entry)
            count += 1
    if count == 0:
        return 0
    # The name after it, since the topic may go when the lock is let go of.
    fetched.data = <uint8_t*>malloc(<size_t>(bound + topic.name_length))
    if fetched.data == NULL:
        return -1
    at = put_count(fetched.data, form.flexible, count)
    for i in range(topic.count):
        entry = entry_replicated(&topic.entries[i], form.high_watermark)
        if entry != NULL:
            at = _put(at, form, entry.partition, entry, 0)
    fetched.length = at - fetched.data
    fetched.name.at = at
    fetched.name.length = topic.name_length
    fetched.has_id = topic.has_id
    memcpy(fetched.topic_id, topic.topic_id, 16)
    for i in range(topic.name_length):
        at[i] = topic.name[i]
    return 1


cdef int fetch_locked(Fetched* fetched, Group* group) noexcept nogil:
    cdef uint32_t place
    cdef int status
    if not fetched.all_topics:
        return _fetch_named(fetched, group)
    if group == NULL or group.topics == NULL:
        return 0
    fetched.topics = <FetchedTopic*>calloc(<size_t>group.topic_count + 1, sizeof(FetchedTopic))
    if fetched.topics == NULL:
        return -1
    for place in range(group.topic_mask + 1):
        if group.topics[place] == NULL:
            continue
        status = _fetch_whole_topic(
            group.topics[place], &fetched.form, &fetched.topics[fetched.count])
        if status < 0:
            return -1
        fetched.count += status
    return 0


cdef void fetched_free(Fetched* fetched) noexcept nogil:
    cdef int32_t i
    if fetched.topics == NULL:
        return
    for i in range(fetched.count):
        free(fetched.topics[i].data)
    free(fetched.topics)
    fetched.topics = NULL
