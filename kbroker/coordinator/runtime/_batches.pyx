# cython: language_level=3
"""One batch of magic 2, built straight into memory that the caller has sized with the `_bound`
functions. Pure functions; no lock, no allocation, no Python object.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from kbroker.log.engine._records cimport (
    AT_ATTRIBUTES,
    AT_BASE_SEQUENCE,
    AT_BASE_TIMESTAMP,
    AT_CRC,
    AT_LAST_OFFSET_DELTA,
    AT_LENGTH,
    AT_MAGIC,
    AT_MAX_TIMESTAMP,
    AT_PRODUCER_ID,
    AT_RECORD_COUNT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    crc32c,
)
from kbroker.log.engine._types cimport Batch
from kbroker.protocol._cursor cimport kb_put_u32, kb_put_u64, put_raw


cdef size_t batch_bound() noexcept nogil:
    return HEADER_BYTES


cdef void batch_begin(BatchWriter* writer, uint8_t* memory, int64_t now_ms) noexcept nogil:
    memset(memory, 0, HEADER_BYTES)
    writer.start = memory
    writer.at = memory + HEADER_BYTES
    writer.now_ms = now_ms
    writer.count = 0


cdef void batch_put_record(
    BatchWriter* writer, const Text* key, const Text* value,
) noexcept nogil:
    cdef uint8_t* at = record_begin(writer, key.length, value.length)
    if key.length > 0:
        at = put_raw(at, key.at, <size_t>key.length)
    at = put_varint(at, value.length)
    if value.length > 0:
        at = put_raw(at, value.at, <size_t>value.length)
    record_end(writer, at)


cdef uint32_t batch_end(BatchWriter* writer, int32_t sequence=0) noexcept nogil:
    cdef uint8_t* start = writer.start
    cdef uint32_t length = <uint32_t>(writer.at - start)
    kb_put_u32(start + AT_LENGTH, length - LOG_OVERHEAD_BYTES)
    start[AT_MAGIC] = 2
    kb_put_u32(start + AT_LAST_OFFSET_DELTA, <uint32_t>(writer.count - 1))
    kb_put_u64(start + AT_BASE_TIMESTAMP, <uint64_t>writer.now_ms)
    kb_put_u64(start + AT_MAX_TIMESTAMP, <uint64_t>writer.now_ms)
    memset(start + AT_PRODUCER_ID, 0xff, 8 + 2)
    kb_put_u32(start + AT_BASE_SEQUENCE, <uint32_t>sequence)
    kb_put_u32(start + AT_RECORD_COUNT, <uint32_t>writer.count)
    kb_put_u32(start + AT_CRC, crc32c(0, start + AT_ATTRIBUTES, length - AT_ATTRIBUTES))
    return length


cdef void batch_prepare(
    Batch* batch, uint8_t* data, uint32_t length, int32_t count, int64_t now_ms,
) noexcept nogil:
    memset(batch, 0, sizeof(Batch))
    batch.data = data
    batch.length_bytes = length
    batch.acks = -1
    batch.error_record = -1
    batch.base_offset = -1
    batch.append_time_ms = -1
    batch.log_start_offset = -1
    batch.record_count = count
    batch.producer_id = -1
    batch.producer_epoch = -1
    batch.base_sequence = -1
    batch.max_timestamp_ms = now_ms


cdef void batch_of_records(
    Batch* batch, const Records* records, int64_t now_ms, int32_t sequence=0,
) noexcept nogil:
    cdef BatchWriter writer
    cdef Py_ssize_t i
    batch_begin(&writer, records.memory, now_ms)
    for i in range(records.count):
        batch_put_record(&writer, &records.texts[2 * i], &records.texts[2 * i + 1])
    batch_prepare(
        batch, records.memory, batch_end(&writer, sequence), <int32_t>records.count, now_ms)
