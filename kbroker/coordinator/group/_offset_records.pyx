# cython: language_level=3
"""Committed offsets as records of `__consumer_offsets`, in the form of Apache Kafka 4.3.

    key     int16 1, group, topic (int16 lengths), int32 partition          0 is read as well
    value   int16 4, int64 offset, int32 leader epoch, compact string metadata, int64 commit time,
            tagged fields: 0 the topic's id                                 the usual one
            int16 1, int64 offset, string metadata, int64 commit time, int64 expiry time
                                        where the client gave a retention (OffsetCommit 2-4)
            0, 2 and 3 are read as well; later ones are read as 4, as far as we know them

The bytes go into a batch under construction (`runtime/_batches`). Everything that is read is
hostile: it goes through a Cursor, and -1 says damaged. Pure functions; no lock, no
allocation, no Python object.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.runtime._batches cimport (
    BatchWriter, Text, put_varint, record_begin, record_bound, record_end)
from kbroker.core._limits cimport TEXT_BYTES_MAX
from kbroker.protocol._cursor cimport (
    Cursor,
    put_i16,
    put_i32,
    put_i64,
    put_raw,
    put_string,
    put_uvarint,
    take,
    take_i16,
    take_i32,
    take_i64,
    take_string,
    take_uvarint,
)

cdef enum:
    KEY_VERSION = 1
    VALUE_VERSION = 4
    VALUE_WITH_EXPIRY = 1
    VALUE_FLEXIBLE_FROM = 4
    TOPIC_ID_TAG = 0
    TOPIC_ID_BYTES = 16


# --- writing -------------------------------------------------------------------------------------

cdef size_t offset_record_bound(const OffsetKey* key, const OffsetValue* value) noexcept nogil:
    cdef int64_t value_length = 0
    if value != NULL:
        value_length = offset_value_bytes(value)
    return record_bound(offset_key_bytes(key), value_length)


cdef int32_t offset_key_bytes(const OffsetKey* key) noexcept nogil:
    return 2 + 2 + key.group.length + 2 + key.topic.length + 4


cdef uint8_t* put_offset_key(uint8_t* at, const OffsetKey* key) noexcept nogil:
    at = put_i16(at, KEY_VERSION)
    at = put_string(at, 0, key.group.at, key.group.length)
    at = put_string(at, 0, key.topic.at, key.topic.length)
    return put_i32(at, key.partition)


cdef int32_t offset_value_bytes(const OffsetValue* value) noexcept nogil:
    cdef uint32_t length = <uint32_t>value.metadata.length
    cdef int32_t prefix = 1
    if value.expire_ms != NO_EXPIRY:
        return 2 + 8 + 2 + value.metadata.length + 8 + 8
    length += 1
    while length >= 0x80:
        length >>= 7
        prefix += 1
    return (
        2 + 8 + 4 + prefix + value.metadata.length + 8 + 1
        + (2 + TOPIC_ID_BYTES if value.topic_id != NULL else 0)
    )


cdef uint8_t* put_offset_value(uint8_t* at, const OffsetValue* value) noexcept nogil:
    if value.expire_ms != NO_EXPIRY:
        at = put_i16(at, VALUE_WITH_EXPIRY)
        at = put_i64(at, value.offset)
        at = put_string(at, 0, value.metadata.at, value.metadata.length)
        at = put_i64(at, value.commit_ms)
        return put_i64(at, value.expire_ms)
    at = put_i16(at, VALUE_VERSION)
    at = put_i64(at, value.offset)
    at = put_i32(at, value.leader_epoch)
    at = put_string(at, 1, value.metadata.at, value.metadata.length)
    at = put_i64(at, value.commit_ms)
    if value.topic_id == NULL:
        return put_uvarint(at, 0)
    at = put_uvarint(at, 1)
    at = put_uvarint(at, TOPIC_ID_TAG)
    at = put_uvarint(at, TOPIC_ID_BYTES)
    return put_raw(at, value.topic_id, TOPIC_ID_BYTES)


cdef void batch_put_offset(
    BatchWriter* writer, const OffsetKey* key, const OffsetValue* value,
) noexcept nogil:
    cdef int32_t value_length = -1
    cdef uint8_t* at
    if value != NULL:
        value_length = offset_value_bytes(value)
    at = record_begin(writer, offset_key_bytes(key), value_length)
    at = put_offset_key(at, key)
    at = put_varint(at, value_length)
    if value != NULL:
        at = put_offset_value(at, value)
    record_end(writer, at)


# --- reading -------------------------------------------------------------------------------------

cdef inline void _open(Cursor* cursor, const Text* data) noexcept nogil:
    cursor.at = <uint8_t*>data.at
    cursor.left = <size_t>(data.length if data.length > 0 else 0)
    cursor.failed = 0


cdef inline void _take_text(Cursor* cursor, int flexible, Text* text) noexcept nogil:
    cdef int64_t length
    text.at = take_string(cursor, flexible, &length)
    if length > TEXT_BYTES_MAX:
        cursor.failed = 1
    text.length = <int32_t>length


cdef int read_offset_key(const Text* data, OffsetKey* key) noexcept nogil:
    cdef Cursor cursor
    cdef int16_t version
    _open(&cursor, data)
    version = take_i16(&cursor)
    if cursor.failed:
        return -1
    if version != 0 and version != KEY_VERSION:
        return 0
    _take_text(&cursor, 0, &key.group)
    _take_text(&cursor, 0, &key.topic)
    key.partition = take_i32(&cursor)
    if cursor.failed or key.group.length < 0 or key.topic.length < 0 or key.partition < 0:
        return -1
    return 1


cdef int read_offset_value(const Text* data, OffsetValue* value) noexcept nogil:
    cdef Cursor cursor
    cdef int version
    cdef uint32_t tags
    cdef uint32_t tag
    cdef uint32_t size
    cdef uint8_t* at
    _open(&cursor, data)
    version = take_i16(&cursor)
    value.expire_ms = NO_EXPIRY
    value.leader_epoch = -1
    value.topic_id = NULL
    value.offset = take_i64(&cursor)
    if version >= 3:
        value.leader_epoch = take_i32(&cursor)
    _take_text(&cursor, version >= VALUE_FLEXIBLE_FROM, &value.metadata)
    value.commit_ms = take_i64(&cursor)
    if version == VALUE_WITH_EXPIRY:
        value.expire_ms = take_i64(&cursor)
    if version >= VALUE_FLEXIBLE_FROM:
        tags = take_uvarint(&cursor)
        while tags > 0 and not cursor.failed:
            tags -= 1
            tag = take_uvarint(&cursor)
            size = take_uvarint(&cursor)
            at = take(&cursor, size)
            if tag == TOPIC_ID_TAG and size == TOPIC_ID_BYTES:
                value.topic_id = at
    if cursor.failed or version < 0 or value.metadata.length < 0:
        return -1
    return 1
