# cython: language_level=3
"""Committed offsets as records of `__consumer_offsets`; see _offset_records.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._batches cimport BatchWriter, Text

cdef enum:
    NO_EXPIRY = -1


cdef struct OffsetKey:
    Text group
    Text topic
    int32_t partition


cdef struct OffsetValue:
    int64_t offset
    int64_t commit_ms
    int64_t expire_ms             # NO_EXPIRY: the broker's retention decides
    int32_t leader_epoch          # -1: not given
    Text metadata
    const uint8_t* topic_id       # 16 bytes; NULL: not known


cdef size_t offset_record_bound(const OffsetKey* key, const OffsetValue* value) noexcept nogil
# value NULL: a tombstone.
cdef void batch_put_offset(
    BatchWriter* writer, const OffsetKey* key, const OffsetValue* value) noexcept nogil

cdef int32_t offset_key_bytes(const OffsetKey* key) noexcept nogil
cdef uint8_t* put_offset_key(uint8_t* at, const OffsetKey* key) noexcept nogil
cdef int32_t offset_value_bytes(const OffsetValue* value) noexcept nogil
cdef uint8_t* put_offset_value(uint8_t* at, const OffsetValue* value) noexcept nogil

# 1: it is one, and whole. 0: the key of something else. -1: damaged.
cdef int read_offset_key(const Text* data, OffsetKey* key) noexcept nogil
cdef int read_offset_value(const Text* data, OffsetValue* value) noexcept nogil
