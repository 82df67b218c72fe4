# cython: language_level=3
"""Records that a coordinator writes, and those that it reads again; see _batches.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.log.engine._types cimport Batch
from kbroker.protocol._cursor cimport put_uvarint

cdef enum:
    RECORD_OVERHEAD = 32          # lengths, deltas, attributes, headers: 5 varints and 3 bytes


# A text that another structure holds; length -1: null.
cdef struct Text:
    const uint8_t* at
    int32_t length


# One record of a batch, its bytes where they lie.
cdef struct RecordView:
    int64_t offset
    int64_t timestamp_ms
    Text key
    Text value


# Keys and values in turn, and memory that is large enough for a batch of them.
cdef struct Records:
    const Text* texts
    Py_ssize_t count
    uint8_t* memory


# A batch under construction, in memory that is large enough.
cdef struct BatchWriter:
    uint8_t* start
    uint8_t* at
    int64_t now_ms
    int32_t count


cdef size_t batch_bound() noexcept nogil
cdef void batch_begin(BatchWriter* writer, uint8_t* memory, int64_t now_ms) noexcept nogil
cdef void batch_put_record(
    BatchWriter* writer, const Text* key, const Text* value) noexcept nogil
# The batch's size in bytes.
cdef uint32_t batch_end(BatchWriter* writer, int32_t sequence=*) noexcept nogil

# The batch that batch_end has built, as if it had been validated.
cdef void batch_prepare(
    Batch* batch, uint8_t* data, uint32_t length, int32_t count, int64_t now_ms) noexcept nogil

# A whole batch of these records. `sequence`: of its first one, 0 or -1.
cdef void batch_of_records(
    Batch* batch, const Records* records, int64_t now_ms, int32_t sequence=*) noexcept nogil


cdef inline uint8_t* put_varint(uint8_t* at, int32_t value) noexcept nogil:
    return put_uvarint(at, (<uint32_t>value << 1) ^ <uint32_t>(value >> 31))


cdef inline int32_t _varint_bytes(int64_t value) noexcept nogil:
    cdef uint64_t zigzag = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int32_t count = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        count += 1
    return count


# A record that is built in place: its key goes to the pointer returned; then come put_varint of the
# value's length, the value and record_end. A length of -1 is null.
cdef inline uint8_t* record_begin(
    BatchWriter* writer, int32_t key_length, int32_t value_length,
) noexcept nogil:
    cdef int32_t body = 1 + 1 + _varint_bytes(writer.count) + _varint_bytes(key_length) + (
        _varint_bytes(value_length) + 1)
    cdef uint8_t* at = writer.at
    if key_length > 0:
        body += key_length
    if value_length > 0:
        body += value_length
    at = put_varint(at, body)
    at[0] = 0                     # attributes
    at[1] = 0                     # timestamp delta
    at = put_varint(at + 2, writer.count)
    writer.count += 1
    return put_varint(at, key_length)


cdef inline void record_end(BatchWriter* writer, uint8_t* at) noexcept nogil:
    at[0] = 0                     # no headers
    writer.at = at + 1


cdef inline size_t record_bound(int64_t key_length, int64_t value_length) noexcept nogil:
    cdef size_t bound = RECORD_OVERHEAD
    if key_length > 0:
        bound += <size_t>key_length
    if value_length > 0:
        bound += <size_t>value_length
    return bound
