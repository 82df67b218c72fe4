# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._batches cimport RecordView, Text
from kbroker.coordinator.group._structs cimport Shard


# Records that are no committed offsets, where they lie.
cdef struct Others:
    RecordView* items
    int64_t count
    int64_t capacity
    int64_t unreadable            # records that are left out


cdef enum:
    APPLIED = 1
    NOT_AN_OFFSET = 0             # or one that does not read
    NO_MEMORY = -1

# What a record of __consumer_offsets at this offset of the log means for the shard. `topic_id`:
# known beside a record that has no place for it, or NULL.
cdef int record_apply_locked(
    Shard* shard, const Text* key, const Text* value, int64_t log_offset,
    const uint8_t* topic_id) noexcept nogil

# Applies uncompressed records, or only lists them all; 0 or NO_MEMORY. What cannot be read is
# counted and left out.
cdef int load_records(
    Shard* shard, uint8_t* records, int64_t length, int32_t count, int64_t base_offset,
    int64_t base_timestamp_ms, int apply, Others* others) noexcept nogil
