# cython: language_level=3
"""The records of `__transaction_state`, written in Apache Kafka's format; records.py reads them.

| record | bytes |
|---|---|
| key | int16 0; the id: string |
| value | int16 0 or 1; producer id, epoch, timeout, state, partitions, last update, start; tags |

Version 1 has compact lengths, and in its tags what is not the default: the producer ids before (0)
and after (1), and the version of transactions that the client goes by (2). Partitions are null in
Empty only. Pure functions, into memory that the caller has sized.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.runtime._batches cimport (
    BatchWriter, batch_begin, batch_bound, batch_end, put_varint, record_begin, record_bound,
    record_end)
from kbroker.coordinator.txn._places cimport places_list
from kbroker.coordinator.txn._structs cimport NO_PRODUCER_ID, TXN_EMPTY, Places, TxnImage
from kbroker.protocol._cursor cimport (
    get_i32, kb_get_u16, put_count, put_i8, put_i16, put_i32, put_i64, put_no_tags, put_raw,
    put_string, put_uvarint)

cdef enum:
    KEY_VERSION = 0
    VALUE_FLEXIBLE_FROM = 1
    TAG_PREVIOUS = 0
    TAG_NEXT = 1
    TAG_CLIENT_VERSION = 2
    # Fields of fixed sizes, the count of topics, and all tags.
    FIXED_BYTES_MAX = 2 + 8 + 2 + 4 + 1 + 5 + 8 + 8 + 1 + 2 * (1 + 1 + 8) + (1 + 1 + 2)
    # What a topic has more in version 1: a longer length or count, and its tags.
    TOPIC_MORE_BYTES = 3


cdef size_t txn_value_bound(const TxnImage* image) noexcept nogil:
    cdef size_t bound = FIXED_BYTES_MAX
    if image.places != NULL:
        bound += <size_t>image.places.size_bytes
        bound += TOPIC_MORE_BYTES * <size_t>image.places.topic_count
    return bound


cdef uint8_t* _put_places(uint8_t* at, const Places* places, int flexible) noexcept nogil:
    cdef const uint8_t* topic
    cdef const uint8_t* end
    cdef int32_t length
    cdef int32_t count
    at = put_count(at, flexible, places.topic_count if places != NULL else 0)
    if places == NULL:
        return at
    if not flexible:
        return put_raw(at, places_list(places), <size_t>places.size_bytes)
    topic = places_list(places)
    end = topic + places.size_bytes
    while topic != end:
        length = kb_get_u16(topic)
        at = put_string(at, 1, topic + 2, length)
        topic += 2 + length
        count = get_i32(topic)
        at = put_count(at, 1, count)
        at = put_raw(at, topic + 4, 4 * <size_t>count)
        at = put_no_tags(at, 1)
        topic += 4 + 4 * <int64_t>count
    return at


cdef uint8_t* _put_tag_i64(uint8_t* at, uint32_t tag, int64_t value) noexcept nogil:
    return put_i64(put_uvarint(put_uvarint(at, tag), 8), value)


cdef uint8_t* _put_tags(uint8_t* at, const TxnImage* image) noexcept nogil:
    cdef int has_previous = image.previous_producer_id != NO_PRODUCER_ID
    cdef int has_next = image.next_producer_id != NO_PRODUCER_ID
    cdef int has_version = image.client_version != 0
    at = put_uvarint(at, <uint32_t>(has_previous + has_next + has_version))
    if has_previous:
        at = _put_tag_i64(at, TAG_PREVIOUS, image.previous_producer_id)
    if has_next:
        at = _put_tag_i64(at, TAG_NEXT, image.next_producer_id)
    if has_version:
        at = put_uvarint(put_uvarint(at, TAG_CLIENT_VERSION), 2)
        at = put_i16(at, image.client_version)
    return at


cdef uint8_t* txn_put_value(uint8_t* at, const TxnImage* image, int version) noexcept nogil:
    cdef int flexible = version >= VALUE_FLEXIBLE_FROM
    at = put_i16(at, <int16_t>version)
    at = put_i64(at, image.producer_id)
    at = put_i16(at, image.epoch)
    at = put_i32(at, image.timeout_ms)
    at = put_i8(at, image.state)
    if image.state == TXN_EMPTY:
        at = put_count(at, flexible, -1)
    else:
        at = _put_places(at, image.places, flexible)
    at = put_i64(at, image.update_ms)
    at = put_i64(at, image.start_ms)
    return _put_tags(at, image) if flexible else at


cdef inline int32_t _key_bytes(int32_t id_length) noexcept nogil:
    return 2 + 2 + id_length


cdef size_t txn_batch_bound(int32_t id_length, const TxnImage* image) noexcept nogil:
    # The value is written once before its length is known, after the room for the batch.
    cdef size_t value = txn_value_bound(image)
    return batch_bound() + record_bound(_key_bytes(id_length), <int64_t>value) + value


cdef uint32_t txn_put_batch(
    uint8_t* memory, const uint8_t* id, int32_t id_length, const TxnImage* image, int version,
    int64_t now_ms, int32_t base_sequence
) noexcept nogil:
    cdef int32_t key_length = _key_bytes(id_length)
    cdef uint8_t* value = memory + batch_bound() + record_bound(
        key_length, <int64_t>txn_value_bound(image))
    cdef int32_t value_length = <int32_t>(txn_put_value(value, image, version) - value)
    cdef BatchWriter writer
    cdef uint8_t* at
    batch_begin(&writer, memory, now_ms)
    at = record_begin(&writer, key_length, value_length)
    at = put_i16(at, KEY_VERSION)
    at = put_string(at, 0, id, id_length)
    at = put_varint(at, value_length)
    at = put_raw(at, value, <size_t>value_length)
    record_end(&writer, at)
    return batch_end(&writer, base_sequence)
