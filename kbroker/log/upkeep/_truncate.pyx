# cython: language_level=3
"""The end of a log, cut back: for a replica whose leader has another history.

The log then ends at an offset, or after the last batch that lies below it. The segment of that
offset is opened again, from its file as it is then: its indexes lose the entries beyond the cut,
its largest timestamp is looked up again, and it is the one that is appended to. With the bytes go
the ring of recent batches, the places that were handed out, and the recovery point beyond them; the
producers are the caller's to restore, and so are the leader epochs. The points fall before any file
is touched (`begin_cut`): of a change that is half on the disk a start after a power cut would
otherwise trust files that it does not read.

Bytes that a slice has lent are never changed under it. If the segment is in use the caller gives
its file's place to a copy of the part that stays, and the slices keep the old one.

Called by `PartitionLog.truncate_to`, from the thread that appends the leader's records: nothing
else changes the log meanwhile. Under the log's lock, readers of memory wait for it.
"""

from libc.errno cimport EBUSY, EIO
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

import os

from kbroker._log cimport LocalLog
from kbroker.core._atomics cimport kb_load_int, kb_store_i64, kb_store_int
from kbroker.core._sync cimport kb_wall_ms
from kbroker.log.engine._producer_state cimport producers_clear
from kbroker.log.engine._segment cimport (
    Scan, scan_advance, scan_begin, scan_from_index, scan_next, segment_activate, segment_create,
    segment_cut_indexes, segment_drop_reference, segment_open, segment_scan_start)
from kbroker.log.engine._storage cimport (
    Log, active_of, handed_out_clear, lock_log, lock_to_look, log_add_segment,
    log_drop_segments_after, log_find_segment, log_is_sound_locked, log_requires, recent_clear,
    unlock_log)
from kbroker.log.engine._types cimport Segment
from kbroker.log.opening._recovery cimport Recovered, check_segment, truncate_segment
from kbroker.log.upkeep._flush cimport log_sync_segment

from kbroker.log.engine._errors import SyncError


cdef struct Cut:
    int32_t at                    # the segment in which the log ends then
    int64_t position              # in its file
    int64_t end_offset


cdef int find_cut_in(Segment* segment, int64_t offset, int by_index, Cut* cut) noexcept nogil:
    # 0 or an errno.
    cdef Scan scan
    cdef int found
    # After the batch before it, also where compaction left a gap: where a segment ends the next one
    # begins, and recovery takes anything else for lost.
    cut.end_offset = segment.base_offset
    scan_begin(
        &scan, segment.fd, segment_scan_start(segment, offset - 1) if by_index else 0,
        segment.size_bytes)
    found = scan_from_index(&scan, offset - 1)
    while found == 1 and scan.header.base_offset + scan.header.last_offset_delta < offset:
        cut.end_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
        scan_advance(&scan)
        found = scan_next(&scan)
    cut.position = scan.position
    if found >= 0 and cut.position > 0 and cut.end_offset == segment.base_offset:
        # The index led to the batch that holds both: the one before it is not known.
        return find_cut_in(segment, offset, 0, cut)
    return 0 if found >= 0 else scan.status or EIO


cdef int find_cut_locked(Log* log, int64_t offset, Cut* cut) noexcept nogil:
    # 0 or an errno.
    cut.at = log_find_segment(log, offset)
    if cut.at < 0:
        return EIO
    return find_cut_in(log.segments[cut.at], offset, 1, cut)


cdef Segment* open_cut(Log* log, const Cut* cut, int64_t base_offset, int* status) noexcept nogil:
    # The segment as its file is now, to be appended to; NULL and an errno.
    cdef Segment* segment = segment_open(log.directory, base_offset, kb_wall_ms(), status)
    cdef Recovered found
    if segment == NULL:
        return NULL
    status[0] = check_segment(
        segment, 0, log.settings.index_bytes, log.settings.index_interval_bytes, &found)
    if status[0] == 0 and (found.reason != NULL or found.valid_bytes != cut.position):
        status[0] = EIO
    if status[0] == 0:
        status[0] = segment_activate(segment, log.settings.index_bytes)
    if status[0] != 0:
        segment_drop_reference(segment)
        return NULL
    return segment


cdef void lower_points_locked(Log* log, int64_t settled) noexcept nogil:
    if log.recovery_point > settled:
        kb_store_i64(&log.recovery_point, settled)
    if log.settled_offset > settled:
        kb_store_i64(&log.settled_offset, settled)


cdef void forget_after_locked(Log* log, int64_t end_offset, int64_t settled) noexcept nogil:
    log.cuts += 1
    log.being_cut = 0
    kb_store_i64(&log.log_end_offset, end_offset)
    if log.log_start_offset > end_offset:
        kb_store_i64(&log.log_start_offset, end_offset)
    lower_points_locked(log, settled)
    log.named_base_offset = -1    # the directory is synced with the next flush
    kb_store_int(&log.flush_due, end_offset - log.recovery_point >= log.settings.flush_messages)
    recent_clear(log)
    handed_out_clear(log)
    free(log.warm)
    log.warm = NULL
    log.warm_next = 0
    producers_clear(&log.producers)


cdef int cut_locked(Log* log, int64_t offset, int replaced) noexcept nogil:
    # 0 or an errno; EBUSY: the segment is in use, and nothing has changed.
    cdef Cut cut
    cdef Segment* old
    cdef Segment* fresh
    cdef int status = find_cut_locked(log, offset, &cut)
    if status != 0:
        return status
    if not log_is_sound_locked(log) or not log_requires(
            log, cut.end_offset <= log.log_end_offset, "cut: the log becomes no longer",
            cut.end_offset, log.log_end_offset):
        return EIO
    old = log.segments[cut.at]
    if not log_requires(log, 0 <= cut.position <= old.size_bytes,
                        "cut: it is in the segment's file", cut.position, old.size_bytes):
        return EIO
    if not replaced:
        if kb_load_int(&old.refs) > 1:
            return EBUSY
        status = truncate_segment(old, cut.position)
    if status == 0:
        status = segment_cut_indexes(old, cut.position, cut.end_offset)
    fresh = NULL
    if status == 0:
        fresh = open_cut(log, &cut, old.base_offset, &status)
    if fresh == NULL:
        kb_store_int(&log.online, 0)  # the content of its files is unknown
        return status
    # The segments after it have lost their names already: see the caller.
    log_drop_segments_after(log, cut.at)
    log_add_segment(log, fresh)   # into the room that the old one had
    forget_after_locked(log, cut.end_offset, fresh.base_offset)
    return 0


def place_of(LocalLog log not None, int64_t offset) -> tuple:
    """(base offset of the segment, position in it, offset) where a cut at that offset would end the
    log; OSError."""
    cdef Log* storage = log.storage
    cdef Cut cut
    cdef int64_t base_offset = -1
    cdef int status
    with nogil:
        lock_to_look(storage)
        status = find_cut_locked(storage, offset, &cut)
        if status == 0:
            base_offset = storage.segments[cut.at].base_offset
        unlock_log(storage)
    if status:
        raise OSError(status, os.strerror(status), log.directory)
    return base_offset, cut.position, cut.end_offset


def begin_cut(LocalLog log not None, int64_t settled) -> None:
    """A cut follows: no point is beyond `settled`, and no flush moves one until it is made."""
    cdef Log* storage = log.storage
    with nogil:
        lock_log(storage)
        storage.being_cut = 1
        lower_points_locked(storage, settled)
        unlock_log(storage)


def give_up_cut(LocalLog log not None) -> None:
    """It does not follow, and nothing has changed but the points."""
    cdef Log* storage = log.storage
    with nogil:
        lock_log(storage)
        storage.being_cut = 0
        unlock_log(storage)


def segments_from(LocalLog log not None, int64_t offset) -> list:
    """Base offsets of the segments that begin at or after an offset, oldest first."""
    cdef Log* storage = log.storage
    cdef int64_t* bases = NULL
    cdef int32_t count = 0, at
    with nogil:
        lock_to_look(storage)
        bases = <int64_t*>malloc(<size_t>storage.segment_count * sizeof(int64_t) + 1)
        if bases != NULL:
            for at in range(storage.segment_count):
                if storage.segments[at].base_offset >= offset:
                    bases[count] = storage.segments[at].base_offset
                    count += 1
        unlock_log(storage)
    if bases == NULL:
        raise MemoryError
    found = [bases[at] for at in range(count)]
    free(bases)
    return found


def cut_end(LocalLog log not None, int64_t offset, *, bint replaced) -> bool:
    """Ends the log there; False: a slice of the segment is out, so its file has to be `replaced`.

    OSError: it went half way, and the log is offline.
    """
    cdef Log* storage = log.storage
    cdef int status, sync_status = 0
    with nogil:
        lock_log(storage)
        status = cut_locked(storage, offset, replaced)
        unlock_log(storage)
        if status == 0:
            # Before a segment after it has a name on the disk: a later start would find the two
            # overlapping. Nothing is appended or closed meanwhile.
            sync_status = log_sync_segment(storage, active_of(storage))
    if status == EBUSY:
        return False
    if sync_status:
        raise SyncError(sync_status, os.strerror(sync_status), log.directory)
    if status:
        raise OSError(status, os.strerror(status), log.directory)
    return True


def begin_again(LocalLog log not None, int64_t offset) -> None:
    """All segments leave the log, whose files have lost their names for good; it goes on empty,
    there."""
    cdef Log* storage = log.storage
    cdef Segment* fresh
    cdef int status = 0
    with nogil:
        lock_log(storage)
        fresh = segment_create(
            storage.directory, offset, storage.settings.index_bytes, kb_wall_ms(), &status)
        if fresh == NULL:
            kb_store_int(&storage.online, 0)
        else:
            log_drop_segments_after(storage, 0)
            log_add_segment(storage, fresh)
            kb_store_i64(&storage.log_start_offset, offset)
            forget_after_locked(storage, offset, offset)
            kb_store_i64(&storage.recovery_point, offset)
            kb_store_i64(&storage.settled_offset, offset)
        unlock_log(storage)
    if status:
        raise OSError(status, os.strerror(status), log.directory)
