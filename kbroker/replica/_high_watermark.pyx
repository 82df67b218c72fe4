# cython: language_level=3
"""The high watermark of a partition: where it lies, and where it moves.

One function writes it. It is raised by the checkpoint at the start, by the leader's answer to a
follower (`partition_follow_bounds`), and for a leader in one place, `partition_advance_locked`,
which is called after everything that could move it: an append, a flush, a follower's fetch, a
change of leadership. It becomes the lowest end of the replicas in sync; the leader's own is its
log's end, or, while a flush is due, the recovery point: no record is read that a power cut may take
back. While fewer than `min.insync.replicas` are in sync it stays (KIP-966): records that too few
have might be lost with them. It is lowered only with a follower's log that is cut.

Its place in the files goes with it, so that no read has to look for it. A leader's may be late
(`_late.pyx`): a follower begins in records of which memory does not know the places.

Lock: the log's. No GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._atomics cimport kb_load_int, kb_store_i64
from kbroker.core._error_codes cimport KAFKA_STORAGE_ERROR, NO_ERROR
from kbroker.log.engine._read cimport Found, log_bound_locked, log_place_of
from kbroker.log.engine._segment cimport segment_drop_reference
from kbroker.log.engine._storage cimport (
    Log, lock_log, lock_to_look, log_has_segment, log_requires, unlock_log)
from kbroker.log.engine._types cimport WAITS_FOR_DISK, WAITS_FOR_LOCKS, Bound
from kbroker.replica._followers cimport followers_reached
from kbroker.replica._last_stable cimport last_stable_find, last_stable_move_locked
from kbroker.replica._late cimport note_late


cdef void move_last_stable_locked(Partition* partition) noexcept nogil:
    last_stable_move_locked(
        partition.log, &partition.high_watermark, &partition.last_stable,
        &partition.last_stable_is_late)


cdef int find_last_stable(Partition* partition) noexcept nogil:
    return last_stable_find(
        partition.log, &partition.high_watermark, &partition.last_stable,
        &partition.last_stable_is_late)


cdef int16_t _put_high_watermark_locked(
    Partition* partition, const Bound* bound
) noexcept nogil:
    if not log_requires(partition.log, 0 <= bound.offset <= partition.log.log_end_offset,
                        "high watermark: it is within the log", bound.offset,
                        partition.log.log_end_offset):
        return KAFKA_STORAGE_ERROR
    partition.high_watermark.segment_base = bound.segment_base
    partition.high_watermark.position = bound.position
    kb_store_i64(&partition.high_watermark.offset, bound.offset)
    move_last_stable_locked(partition)
    return NO_ERROR


cdef int16_t move_high_watermark_locked(
    Partition* partition, int64_t offset, Patience patience
) noexcept nogil:
    cdef Bound bound
    cdef int16_t error = log_bound_locked(partition.log, offset, patience, &bound)
    return error if error != NO_ERROR else _put_high_watermark_locked(partition, &bound)


cdef int16_t partition_set_high_watermark(Partition* partition, int64_t offset) noexcept nogil:
    cdef int16_t error = NO_ERROR
    lock_log(partition.log)
    if partition.log.online:
        error = move_high_watermark_locked(partition, offset, WAITS_FOR_DISK)
    unlock_log(partition.log)
    find_last_stable(partition)
    return error


cdef int64_t _reached_locked(Partition* partition) noexcept nogil:
    # Up to where all that are in sync have the log of this leader; -1: nothing is committed now.
    cdef Log* log = partition.log
    cdef int64_t reached = log.recovery_point if log.flush_due else log.log_end_offset
    if not log.online or not partition.is_leader:
        return -1
    if partition.in_sync_count < log.settings.min_in_sync:
        return -1
    reached = followers_reached(&partition.followers, reached)
    if not log_requires(log, reached <= log.log_end_offset,
                        "in-sync replicas: none is ahead of the leader", reached,
                        log.log_end_offset):
        return -1
    return reached


cdef void partition_advance_locked(Partition* partition) noexcept nogil:
    cdef int64_t reached = _reached_locked(partition)
    cdef int64_t before = partition.high_watermark.offset
    cdef int16_t error = NO_ERROR
    if reached > before:
        error = move_high_watermark_locked(partition, reached, WAITS_FOR_LOCKS)
        log_requires(partition.log, partition.high_watermark.offset >= before,
                     "high watermark: of a leader it goes forward",
                     partition.high_watermark.offset, before)
    note_late(&partition.high_watermark_is_late, error != NO_ERROR)


cdef int _find_high_watermark(Partition* partition) noexcept nogil:
    cdef Log* log = partition.log
    cdef Bound bound
    cdef Found found
    cdef int32_t epoch
    cdef int64_t before
    cdef int moved
    if not kb_load_int(&partition.high_watermark_is_late):
        return 0
    lock_to_look(log)
    before = partition.high_watermark.offset
    partition_advance_locked(partition)        # memory may know it by now
    moved = partition.high_watermark.offset > before
    bound.offset = _reached_locked(partition)
    epoch = partition.leader_epoch
    unlock_log(log)
    if not kb_load_int(&partition.high_watermark_is_late):
        return moved
    if log_place_of(log, bound.offset, &found) != NO_ERROR or found.segment == NULL:
        return moved
    lock_to_look(log)
    # In the same epoch of a leader nothing is cut. A segment that was compacted or removed
    # meanwhile is not the log's any more.
    if (
        partition.leader_epoch == epoch and _reached_locked(partition) >= bound.offset
        and bound.offset > partition.high_watermark.offset
        and bound.offset >= log.log_start_offset and log_has_segment(log, found.segment)
    ):
        bound.segment_base = found.segment.base_offset
        bound.position = found.position
        _put_high_watermark_locked(partition, &bound)
        partition_advance_locked(partition)
    moved = partition.high_watermark.offset > before
    unlock_log(log)
    segment_drop_reference(found.segment)
    return moved


cdef int partition_find_late(Partition* partition) noexcept nogil:
    cdef int moved = _find_high_watermark(partition)
    return find_last_stable(partition) or moved
