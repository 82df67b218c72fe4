# cython: language_level=3
"""The append of a marker that ends a transaction, as with acks=-1. The GIL is released for it.

A log whose write has hung for a second gets none: REQUEST_TIMED_OUT. Its coordinator sends the
marker again; the thread that is to write it has other markers, for logs that are sound.
"""

from libc.stdint cimport int16_t, int64_t, uint8_t

from kbroker.core._atomics cimport kb_load_i64, kb_load_int
from kbroker.core._lock_order cimport lock_now_ns
from kbroker.core._sync cimport kb_now_ns, kb_wall_ms
from kbroker.log.engine._markers cimport MARKER_BYTES, marker_prepare
from kbroker.log.engine._storage cimport Log, lock_log_until, unlock_log
from kbroker.log.engine._types cimport Batch, Marker
from kbroker.log.upkeep._flush cimport FLUSH_RECORDS
from kbroker.replica._partition cimport Partition, partition_append, partition_flush

from kbroker.errors import ErrorCode
from kbroker.log.engine._results import MarkerAppended


cdef enum:
    LATE_NS = 100000000           # a write that is under way for so long is not waited for in line
    PATIENCE_NS = 1000000000      # but until then


cdef int _hangs(Log* log) noexcept nogil:
    cdef int64_t since_ns = kb_load_i64(&log.writing_since_ns)
    cdef int64_t age_ns = kb_now_ns() - since_ns
    if since_ns == 0 or age_ns < LATE_NS:
        return 0
    if not lock_log_until(log, lock_now_ns() + PATIENCE_NS - age_ns, 1):
        return kb_load_i64(&log.writing_since_ns) == since_ns  # else it is only busy
    unlock_log(log)
    return 0


cdef object marker_append(
    Partition* partition, int64_t producer_id, int16_t producer_epoch, const Marker* marker,
    int64_t now_ms
):
    cdef uint8_t data[MARKER_BYTES]
    cdef Batch batch
    cdef int status = 0
    cdef int hangs
    with nogil:
        hangs = _hangs(partition.log)
    if hangs:
        return MarkerAppended(ErrorCode.REQUEST_TIMED_OUT, -1, -1)
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
