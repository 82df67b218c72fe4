# cython: language_level=3
"""Committed offsets as records of `__consumer_offsets`; see _offset_records.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    NO_EXPIRY = -1

# A text that somebody else holds; length -1: null.
cdef struct Text:
    const uint8_t* at
    int32_t length


cdef struct OffsetKey:
    Text group
    Text topic
    int32_t partition


cdef struct OffsetValue:
    int64_t offset
    int64_t commit_ms
    int64_t expire_ms             # NO_EXPIRY: the broker's retention decides
    int32_t leader_epoch          # -1: not told
    Text metadata
    const uint8_t* topic_id       # 16 bytes; NULL: not known


# One record of a batch, its bytes where they lie. A length of -1 is null.
cdef struct RecordView:
    int64_t offset
    int64_t timestamp_ms
    Text key
    Text value


# A batch under construction, in memory that is large enough.
cdef struct BatchWriter:
    uint8_t* start
    uint8_t* at
    int64_t now_ms
    int32_t count


cdef size_t batch_bound() noexcept nogil
cdef size_t offset_record_bound(const OffsetKey* key, const OffsetValue* value) noexcept nogil
cdef size_t record_bound(int64_t key_length, int64_t value_length) noexcept nogil
cdef void batch_begin(BatchWriter* writer, uint8_t* memory, int64_t now_ms) noexcept nogil
# value NULL: a tombstone.
cdef void batch_put_offset(
    BatchWriter* writer, const OffsetKey* key, const OffsetValue* value) noexcept nogil
cdef void batch_put_record(
    BatchWriter* writer, const Text* key, const Text* value) noexcept nogil
# The batch's size in bytes.
cdef uint32_t batch_end(BatchWriter* writer) noexcept nogil

cdef int32_t offset_key_bytes(const OffsetKey* key) noexcept nogil
cdef uint8_t* put_offset_key(uint8_t* at, const OffsetKey* key) noexcept nogil
cdef int32_t offset_value_bytes(const OffsetValue* value) noexcept nogil
cdef uint8_t* put_offset_value(uint8_t* at, const OffsetValue* value) noexcept nogil

# 1: it is one, and whole. 0: the key of something else. -1: damaged.
cdef int read_offset_key(const Text* data, OffsetKey* key) noexcept nogil
cdef int read_offset_value(const Text* data, OffsetValue* value) noexcept nogil
