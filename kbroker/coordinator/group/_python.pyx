# cython: language_level=3
"""Between the coordinator's C half and Python's objects: names, offsets, members, loaded batches.

Everything here holds the GIL and no lock. A `Text` of a bytes object is good while that object
lives. A batch is loaded in two steps: what it holds is walked without the GIL, and what Python must
look at becomes objects after that.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from collections import namedtuple

from kbroker.coordinator.group._copies cimport (
    Copy,
)
from kbroker.coordinator.group._fetching cimport Fetched, FetchedTopic
from kbroker.coordinator.group._loading cimport (
    NO_MEMORY,
    Others,
    load_records,
    record_apply_locked,
)
from kbroker.coordinator.group._members cimport (
    ShownMembers,
    member_new,
    members_copy_locked,
    shown_members_free,
)
from kbroker.coordinator.group._offset_records cimport (
    OffsetKey, OffsetValue, offset_key_bytes, offset_value_bytes, put_offset_key, put_offset_value)
from kbroker.coordinator.group._shards cimport (
    group_find_locked,
    shard_index,
    shard_lock,
    shard_unlock,
)
from kbroker.coordinator.group._structs cimport (
    Member,
    Shard,
)
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.core._arena cimport Arena, arena_take
from kbroker.core._limits cimport TEXT_BYTES_MAX
from kbroker.log.engine._records cimport (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    Header,
    batch_crc,
    header_plausible,
    header_read,
)

from kbroker.compression import Codec, CompressionError, decompress
from kbroker.coordinator.group.seams import ShownGroup
from kbroker.errors import ErrorCode, KafkaError
from kbroker.outside_text import untellable

CommittedOffset = namedtuple("CommittedOffset", (
    "topic", "partition", "offset", "leader_epoch", "metadata", "commit_ms", "expire_ms",
    "topic_id"))
ShardStatistics = namedtuple("ShardStatistics", ("groups", "offsets", "bytes"))
LoadedRecord = namedtuple("LoadedRecord", ("offset", "timestamp_ms", "key", "value"))
LoadedBatches = namedtuple(
    "LoadedBatches", ("used_bytes", "next_offset", "records", "left_out"))


cdef int java_hash(str text) except? -1:
    # Of any text, in units of UTF-16; requests in C have ASCII (java_hash_ascii).
    cdef uint32_t mixed = 0
    cdef bytes units = text.encode("utf-16-be", "surrogatepass")
    cdef const uint8_t* at = <const uint8_t*><const char*>units
    cdef Py_ssize_t i
    for i in range(0, len(units), 2):
        mixed = 31u * mixed + ((<uint32_t>at[i] << 8) | at[i + 1])
    return <int>mixed


def partition_for(str group_id not None, int count):
    if count < 1:
        raise ValueError(f"{count} partitions")
    return shard_index(java_hash(group_id), count)


cdef Text text_of(bytes data) noexcept:
    # Good while the object lives.
    cdef Text text
    text.at = <const uint8_t*><const char*>data
    text.length = <int32_t>len(data)
    return text


cdef Text* texts_of(Arena* arena, list pairs) except NULL:
    # Keys and values in turn, good while the list lives; a value may be None.
    cdef Py_ssize_t count = len(pairs)
    cdef Text* texts = <Text*>arena_take(arena, 2 * sizeof(Text) * <size_t>(count + 1))
    cdef Py_ssize_t i
    if texts == NULL:
        raise MemoryError
    for i in range(count):
        key, value = pairs[i]
        texts[2 * i] = text_of(key)
        texts[2 * i + 1].length = -1
        if value is not None:
            texts[2 * i + 1] = text_of(value)
    return texts


cdef bytes name_bytes(str text):
    cdef bytes data = text.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise untellable(len(data))
    return data


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


cdef str str_of(const Text* text):
    return (<const char*>text.at)[:text.length].decode("utf-8", "replace")


cdef object nullable_bytes(const Text* text):
    return None if text.length < 0 else (<const char*>text.at)[:text.length]


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
    # `asked`: (name, its bytes, indexes as bytes, id or None), which must live as long; None: all.
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


cdef object shown_group(Shard* shard, const Text* id):
    cdef ShownMembers copied
    cdef Text text
    cdef Member* member
    cdef int status
    cdef int32_t i
    with nogil:
        shard_lock(shard)
        status = members_copy_locked(group_find_locked(shard, id.at, id.length), &copied)
        shard_unlock(shard)
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
        return ShownGroup(copied.state, copied.generation, members)
    finally:
        shown_members_free(&copied)


# --- loading -------------------------------------------------------------------------------------

cdef int load_batch(
    Shard* shard, bytes data, Py_ssize_t at, list found, list left_out, dict open_transactions,
    int64_t* next_offset,
) except -1:
    # Its size; 0: it is cut off.
    cdef uint8_t* start = <uint8_t*><char*>data + at
    cdef Header header
    header_read(start, &header)
    if not header_plausible(&header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch at byte {at}")
    if header.size_bytes > len(data) - at:
        return 0
    next_offset[0] = header.base_offset + header.last_offset_delta + 1
    trouble = _load_sound_batch(
        shard, &header, data, at, found, open_transactions) if _has_its_crc(
            start, &header) else "its CRC is not that of its bytes"
    if trouble is not None:
        left_out.append((header.base_offset, trouble))
    return <int>header.size_bytes


cdef int _has_its_crc(const uint8_t* start, const Header* header) noexcept:
    cdef int sound
    with nogil:
        sound = batch_crc(start, header.size_bytes) == header.crc
    return sound


cdef object _load_sound_batch(
    Shard* shard, const Header* header, bytes data, Py_ssize_t at, list found,
    dict open_transactions,
):
    # What cannot be read of it, or None.
    cdef bytes unpacked
    cdef uint8_t* records = <uint8_t*><char*>data + at + HEADER_BYTES
    cdef int64_t length = header.size_bytes - HEADER_BYTES
    cdef Others others
    cdef int status, transactional = header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
    if header.attributes & CODEC_MASK:
        try:
            unpacked = decompress(
                Codec(header.attributes & CODEC_MASK),
                data[at + HEADER_BYTES:at + header.size_bytes])
        except (CompressionError, ValueError) as error:
            return str(error)
        records = <uint8_t*><char*>unpacked
        length = len(unpacked)
    memset(&others, 0, sizeof(others))
    try:
        with nogil:
            status = load_records(
                shard, records, length, header.record_count, header.base_offset,
                header.base_timestamp_ms, not transactional, &others)
        if status == NO_MEMORY:
            raise MemoryError
        listed = [
            LoadedRecord(
                others.items[i].offset, others.items[i].timestamp_ms,
                nullable_bytes(&others.items[i].key), nullable_bytes(&others.items[i].value))
            for i in range(others.count)
        ]
    finally:
        free(others.items)
    if transactional:
        _load_transactional(
            shard, header.producer_id, header.attributes & CONTROL_BIT, listed, found,
            open_transactions)
    else:
        found += listed
    if others.unreadable:
        return f"{others.unreadable} of its {header.record_count} records are not well formed"
    return None


cdef int _load_transactional(
    Shard* shard, int64_t producer_id, int control, list records, list found,
    dict open_transactions,
) except -1:
    # What a transaction has written counts with its marker, or never.
    cdef Text key, value
    cdef int64_t offset
    cdef int status
    place = (shard.index, producer_id)
    if not control:
        open_transactions.setdefault(place, []).extend(records)
        return 0
    for marker in records:
        waiting = open_transactions.pop(place, ())
        if marker.key is None or marker.key[2:4] != b"\0\1":
            continue
        for record in waiting:
            if record.key is None:
                continue
            key = text_of(record.key)
            value.at = NULL
            value.length = -1
            if record.value is not None:
                value = text_of(record.value)
            offset = record.offset
            with nogil:
                shard_lock(shard)
                status = record_apply_locked(shard, &key, &value, offset, NULL)
                shard_unlock(shard)
            if status == NO_MEMORY:
                raise MemoryError
            if status != 1:
                found.append(record)
    return 0
