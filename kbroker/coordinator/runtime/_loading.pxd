# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._batches cimport RecordView, Text
from kbroker.coordinator.runtime._structs cimport Shard


# Records that C has not applied, where they lie.
cdef struct Others:
    RecordView* items
    int64_t count
    int64_t capacity
    int64_t unreadable            # records that are left out


# Applies uncompressed records, or only lists them all; 0 or NO_MEMORY. What cannot be read is
# counted and left out. Tombstones are listed in `tombstones` as well, if it is not NULL.
cdef int load_records(
    Shard* shard, uint8_t* records, int64_t length, int32_t count, int64_t base_offset,
    int64_t base_timestamp_ms, int apply, Others* others, Others* tombstones) noexcept nogil
# One record that was listed: APPLIED, FOR_PYTHON or NO_MEMORY.
cdef int record_load(
    Shard* shard, const Text* key, const Text* value, int64_t log_offset) noexcept nogil
