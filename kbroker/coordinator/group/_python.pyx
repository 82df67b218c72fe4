# cython: language_level=3
"""Between the groups' C half and Python's objects: committers, offsets, members.

Everything here holds the GIL and no lock. A `Text` of a bytes object is good while that object
lives.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from collections import namedtuple

from kbroker.coordinator.group._copies cimport Copy
from kbroker.coordinator.group._fetching cimport Fetched, FetchedTopic
from kbroker.coordinator.group._members cimport (
    PublishedMembers,
    member_new,
    members_copy_locked,
    published_members_free,
)
from kbroker.coordinator.group._offset_records cimport (
    OffsetKey, OffsetValue, offset_key_bytes, offset_value_bytes, put_offset_key, put_offset_value,
    read_offset_key, read_offset_value)
from kbroker.coordinator.group._shards cimport group_find_locked, group_shard_lock
from kbroker.coordinator.group._structs cimport GroupShard, Member
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.runtime._python cimport name_bytes, nullable_text_of, str_of, text_of
from kbroker.coordinator.runtime._shards cimport shard_unlock
from kbroker.coordinator.group.seams import PublishedGroup

CommittedOffset = namedtuple("CommittedOffset", (
    "topic", "partition", "offset", "leader_epoch", "metadata", "commit_ms", "expire_ms",
    "topic_id"))
ShardStatistics = namedtuple("ShardStatistics", ("groups", "offsets", "bytes"))


cdef list committer_of(Committer* checked, bytes group, committer):
    cdef bytes member
    cdef bytes instance
    if committer is None:
        return None
    member = name_bytes(committer.member_id)
    instance = name_bytes(committer.instance_id or "")
    checked.group = text_of(group)
    checked.member = text_of(member)
    checked.instance = text_of(instance)
    if committer.instance_id is None:
        checked.instance.length = -1
    checked.generation = committer.generation
    checked.checked_twice = committer.checked_twice
    checked.in_transaction = committer.in_transaction
    return [group, member, instance]


cdef const uint8_t* topic_id_at(bytes topic_id) except? NULL:
    # Good while the object lives; of None NULL.
    if topic_id is None:
        return NULL
    if len(topic_id) != 16:
        raise ValueError("a topic id has 16 bytes")
    return <const uint8_t*><const char*>topic_id


cdef bytes encoded_key(bytes group, bytes topic, int32_t partition):
    cdef OffsetKey key
    cdef bytes data
    key.group = text_of(group)
    key.topic = text_of(topic)
    key.partition = partition
    data = bytes(offset_key_bytes(&key))
    put_offset_key(<uint8_t*><char*>data, &key)
    return data


def offset_key(str group_id not None, str topic not None, int partition):
    return encoded_key(name_bytes(group_id), name_bytes(topic), partition)


def partition_of_key(bytes key not None):
    # (group, topic, partition) of the key of a committed offset; None: it is another one.
    cdef OffsetKey parsed
    cdef Text text = text_of(key)
    if read_offset_key(&text, &parsed) != 1:
        return None
    return str_of(&parsed.group), str_of(&parsed.topic), parsed.partition


def offset_value(offset):
    cdef OffsetValue value
    cdef bytes metadata = name_bytes(offset.metadata)
    cdef bytes topic_id = offset.topic_id
    cdef bytes data
    value.offset = offset.offset
    value.leader_epoch = offset.leader_epoch
    value.commit_ms = offset.commit_ms
    value.expire_ms = offset.expire_ms
    value.metadata = text_of(metadata)
    value.topic_id = topic_id_at(topic_id)
    data = bytes(offset_value_bytes(&value))
    put_offset_value(<uint8_t*><char*>data, &value)
    return data


cdef bytes topic_id_in(bytes value):
    cdef OffsetValue read
    cdef Text text = nullable_text_of(value)
    if read_offset_value(&text, &read) != 1 or read.topic_id == NULL:
        return None
    return (<const char*>read.topic_id)[:16]


cdef object committed_of(const Copy* copied):
    topic_id = None
    if copied.topic_id != NULL:
        topic_id = (<const char*>copied.topic_id)[:16]
    return CommittedOffset(
        str_of(&copied.topic), copied.entry.partition, copied.entry.offset,
        copied.entry.leader_epoch, str_of(&copied.metadata), copied.entry.commit_ms,
        copied.expire_ms, topic_id)


cdef int fetched_init(
    Fetched* fetched, list asked, int64_t texts_again_max, bint named_before,
) except -1:
    # `asked`: (name, its bytes, indexes as bytes, id or None, which are unstable or None), which
    # must live as long; None: all.
    cdef int32_t i
    fetched.all_topics = asked is None
    fetched.count = 0
    fetched.texts_again_max = texts_again_max
    fetched.named_before = named_before
    fetched.texts = 0
    fetched.topics = NULL
    if asked is None:
        return 0
    fetched.topics = <FetchedTopic*>calloc(<size_t>len(asked) + 1, sizeof(FetchedTopic))
    if fetched.topics == NULL:
        raise MemoryError
    fetched.count = <int32_t>len(asked)
    for i in range(fetched.count):
        fetched.topics[i].name = text_of(asked[i][1])
        fetched.topics[i].indexes = text_of(asked[i][2]).at
        fetched.topics[i].count = <int32_t>(len(asked[i][2]) // 4)
        if asked[i][4] is not None:
            fetched.topics[i].unstable = text_of(asked[i][4]).at
        fetched.topics[i].has_id = asked[i][3] is not None
        if fetched.topics[i].has_id:
            memcpy(fetched.topics[i].topic_id, text_of(asked[i][3]).at, 16)
    return 0


cdef list fetched_topics(const Fetched* fetched, list asked, topic_id_of):
    # (name, its partitions as bytes); nothing where nothing was fetched, nor of all topics one that
    # has another id now.
    cdef const FetchedTopic* topic
    cdef int32_t i
    found = []
    for i in range(fetched.count):
        topic = &fetched.topics[i]
        if topic.data != NULL:
            name = str_of(&topic.name) if asked is None else asked[i][0]
            if asked is None and topic.has_id and topic_id_of is not None:
                wanted = topic_id_of(name)
                if wanted is not None and wanted != (<const char*>topic.topic_id)[:16]:
                    continue
            found.append((name, (<const char*>topic.data)[:topic.length]))
    return found


cdef Member* member_of(str member_id, str instance_id) except NULL:
    cdef bytes id = name_bytes(member_id)
    cdef bytes instance = b"" if instance_id is None else name_bytes(instance_id)
    cdef Member* member = member_new(
        <const uint8_t*><const char*>id, <int32_t>len(id),
        <const uint8_t*><const char*>instance,
        -1 if instance_id is None else <int32_t>len(instance))
    if member == NULL:
        raise MemoryError
    return member


cdef object published_group(GroupShard* shard, const Text* id):
    cdef PublishedMembers copied
    cdef Text text
    cdef Member* member
    cdef int status
    cdef int32_t i
    with nogil:
        group_shard_lock(shard)
        status = members_copy_locked(group_find_locked(shard, id.at, id.length), &copied)
        shard_unlock(&shard.base)
    try:
        if status != 0:
            raise MemoryError
        if not copied.known:
            return None
        members = []
        for i in range(copied.count):
            member = copied.members[i]
            text.at = member.id
            text.length = member.id_length
            name = str_of(&text)
            text.at = member.id + member.id_length
            text.length = member.instance_length
            members.append((name, None if text.length < 0 else str_of(&text)))
        return PublishedGroup(copied.state, copied.generation, members)
    finally:
        published_members_free(&copied)
