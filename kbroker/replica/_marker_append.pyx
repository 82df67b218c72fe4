# cython: language_level=3
"""The append of a marker that ends a transaction, as with acks=-1. The GIL is released for it."""

from libc.stdint cimport int16_t, int64_t, uint8_t

from kbroker.core._atomics cimport kb_load_int
from kbroker.core._sync cimport kb_wall_ms
from kbroker.log.engine._markers cimport MARKER_BYTES, marker_prepare
from kbroker.log.engine._types cimport Batch, Marker
from kbroker.log.upkeep._flush cimport FLUSH_RECORDS
from kbroker.replica._partition cimport Partition, partition_append, partition_flush

from kbroker.errors import ErrorCode
from kbroker.log.engine._results import MarkerAppended


cdef object marker_append(
    Partition* partition, int64_t producer_id, int16_t producer_epoch, const Marker* marker,
    int64_t now_ms
):
    cdef uint8_t data[MARKER_BYTES]
    cdef Batch batch
    cdef int status = 0
    with nogil:
        if now_ms < 0:
            now_ms = kb_wall_ms()
        marker_prepare(&batch, data, producer_id, producer_epoch, marker, now_ms)
        partition_append(partition, &batch, now_ms)
        if kb_load_int(&partition.log.flush_due):
            status = partition_flush(partition, FLUSH_RECORDS, NULL)
    if status or batch.error:
        return MarkerAppended(
            ErrorCode.KAFKA_STORAGE_ERROR if status else ErrorCode(batch.error), -1, -1)
    return MarkerAppended(
        ErrorCode.NONE, batch.base_offset, batch.led_since if batch.awaits_followers else -1)
