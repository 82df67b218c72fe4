# cython: language_level=3
"""The control batch that ends a transaction, byte for byte as Apache Kafka writes it.

One record without compression. Its key is a version and the type, 0 to abort and 1 to commit; its
value a version and the epoch of the transaction's coordinator. A reader takes later versions of
both, of which it knows the beginning. No lock, no GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from kbroker.log.engine._records cimport (
    AT_ATTRIBUTES, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_CRC, AT_LENGTH, AT_MAGIC,
    AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID, AT_RECORD_COUNT, CODEC_MASK, CONTROL_BIT,
    HEADER_BYTES, LOG_OVERHEAD_BYTES, TRANSACTIONAL_BIT, Header, batch_crc)
from kbroker.log.engine._types cimport Batch, Marker
from kbroker.protocol._cursor cimport get_i16, get_i32, kb_put_u16, kb_put_u32, kb_put_u64

cdef enum:
    MAGIC = 2
    TYPE_ABORT = 0
    TYPE_COMMIT = 1
    KEY_BYTES = 4
    VALUE_BYTES = 6


cdef void write(
    uint8_t* data, int64_t producer_id, int16_t producer_epoch, const Marker* marker,
    int64_t timestamp_ms
) noexcept nogil:
    cdef uint8_t* record = data + HEADER_BYTES
    memset(data, 0, MARKER_BYTES)
    kb_put_u32(data + AT_LENGTH, MARKER_BYTES - LOG_OVERHEAD_BYTES)
    data[AT_MAGIC] = MAGIC
    kb_put_u16(data + AT_ATTRIBUTES, TRANSACTIONAL_BIT | CONTROL_BIT)
    kb_put_u64(data + AT_BASE_TIMESTAMP, <uint64_t>timestamp_ms)
    kb_put_u64(data + AT_MAX_TIMESTAMP, <uint64_t>timestamp_ms)
    kb_put_u64(data + AT_PRODUCER_ID, <uint64_t>producer_id)
    kb_put_u16(data + AT_PRODUCER_EPOCH, <uint16_t>producer_epoch)
    kb_put_u32(data + AT_BASE_SEQUENCE, 0xFFFFFFFF)
    kb_put_u32(data + AT_RECORD_COUNT, 1)
    # Lengths are zigzag varints: twice the number. Attributes and both deltas are 0.
    record[0] = 2 * (MARKER_RECORD_BYTES - 1)
    record[4] = 2 * KEY_BYTES
    kb_put_u16(record + 7, TYPE_COMMIT if marker.committed else TYPE_ABORT)
    record[9] = 2 * VALUE_BYTES
    kb_put_u32(record + 12, <uint32_t>marker.coordinator_epoch)
    kb_put_u32(data + AT_CRC, batch_crc(data, MARKER_BYTES))


cdef void marker_prepare(
    Batch* batch, uint8_t* data, int64_t producer_id, int16_t producer_epoch, const Marker* marker,
    int64_t timestamp_ms
) noexcept nogil:
    write(data, producer_id, producer_epoch, marker, timestamp_ms)
    memset(batch, 0, sizeof(Batch))
    batch.data = data
    batch.length_bytes = MARKER_BYTES
    batch.acks = -1
    batch.error_record = -1
    batch.base_offset = -1
    batch.attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    batch.producer_id = producer_id
    batch.producer_epoch = producer_epoch
    batch.base_sequence = -1
    batch.record_count = 1
    batch.max_timestamp_ms = timestamp_ms
    batch.marker = marker


cdef const uint8_t* take_varint(
    const uint8_t* at, const uint8_t* end, int32_t* number
) noexcept nogil:
    # NULL: it is cut off, or too long.
    cdef uint32_t raw = 0
    cdef int shift = 0
    while at < end and shift < 32:
        raw |= <uint32_t>(at[0] & 0x7F) << shift
        shift += 7
        if at[0] < 0x80:
            number[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            return at + 1
        at += 1
    return NULL


cdef int marker_read(
    const Header* header, const uint8_t* records, int64_t length, Marker* marker
) noexcept nogil:
    cdef const uint8_t* at = records
    cdef const uint8_t* end = records + min(length, <int64_t>MARKER_RECORD_BYTES_MAX)
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int64_t record_bytes = header.size_bytes - HEADER_BYTES
    cdef int32_t number = 0
    cdef int64_t skipped
    cdef int part, _delta
    if header.record_count < 1 or header.attributes & CODEC_MASK:
        return 0
    at = take_varint(at, end, &number)                 # of the record
    if at == NULL or at >= end:
        return 0
    at += 1                                            # attributes
    for _delta in range(2):                            # both deltas, of which neither is needed
        skipped = 0
        while at < end and at[0] & 0x80 and skipped < 10:
            at += 1
            skipped += 1
        at += 1
    for part in range(2):
        if at >= end:
            return 0
        at = take_varint(at, end, &number)
        if at == NULL or number > record_bytes - (at - records):
            return 0
        if part:
            if number < VALUE_BYTES or end - at < VALUE_BYTES:
                return 0
            value = at
        else:
            if number < KEY_BYTES or number > end - at:
                return 0
            key = at
            at += number
    if get_i16(key) < 0 or get_i16(value) < 0 or get_i16(key + 2) not in (TYPE_ABORT, TYPE_COMMIT):
        return 0
    marker.coordinator_epoch = get_i32(value + 2)
    marker.transaction_version = 0
    marker.committed = get_i16(key + 2) == TYPE_COMMIT
    marker.first_offset = -1
    marker.last_offset = -1
    marker.run = 0
    marker.number = 0
    return 1
