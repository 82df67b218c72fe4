# cython: language_level=3
"""Records that Python has put together, in one batch into the log and into the shard."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._error_codes cimport UNKNOWN_SERVER_ERROR
from kbroker.coordinator.group._loading cimport NO_MEMORY, record_apply_locked
from kbroker.coordinator.group._offset_records cimport (
    BatchWriter,
    Text,
    batch_begin,
    batch_end,
    batch_put_record,
)
from kbroker.coordinator.group._shards cimport batch_prepare, shard_append_locked
from kbroker.coordinator.group._structs cimport Shard
from kbroker.log._types cimport Batch


cdef void records_build(
    Batch* batch, uint8_t* memory, const Text* texts, Py_ssize_t count, int64_t now_ms,
) noexcept nogil:
    cdef BatchWriter writer
    cdef Py_ssize_t i
    batch_begin(&writer, memory, now_ms)
    for i in range(count):
        batch_put_record(&writer, &texts[2 * i], &texts[2 * i + 1])
    batch_prepare(batch, memory, batch_end(&writer), <int32_t>count, now_ms)


cdef int records_write_locked(
    Shard* shard, Batch* batch, const Text* texts, const uint8_t** topic_ids, Py_ssize_t count,
) noexcept nogil:
    cdef Py_ssize_t i
    shard_append_locked(shard, batch, batch.max_timestamp_ms)
    if batch.error != 0:
        return batch.error
    for i in range(count):
        if record_apply_locked(
            shard, &texts[2 * i], &texts[2 * i + 1], batch.base_offset + i, topic_ids[i],
        ) == NO_MEMORY:
            return UNKNOWN_SERVER_ERROR
    return 0
