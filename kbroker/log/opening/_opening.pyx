# cython: language_level=3
"""Opening a log, segment by segment: what the loader (`loader.py`) asks of the C units.

Before the log is online: no other thread has its segments, so no lock is taken. A segment is loaded
for reading and its .log is not changed; what follows its last whole batch is never read. What
becomes of one that is damaged is the loader's decision, and the last one is then made the active
one. An OSError says that the disk did not answer.
"""

from libc.stdint cimport int64_t

from kbroker._log cimport LocalLog
from kbroker.core._sync cimport kb_wall_ms
from kbroker.log.engine._types cimport Segment
from kbroker.log.opening._recovery cimport (
    Recovered, check_segment, find_readable_end, truncate_segment)
from kbroker.log.engine._segment cimport (
    part_of, segment_activate, segment_activate_later, segment_drop_reference, segment_open,
    segment_sync_records)
from kbroker.log.engine._storage cimport (
    Log, active_of, log_add_segment, log_drop_segments_after)

import os

from kbroker.errors import InvariantError
from kbroker.log.engine._results import LoadedSegment


cdef object _os_error(int status, str path):
    return OSError(status, os.strerror(status), path)


def load_segment(LocalLog log not None, int64_t base_offset, *, bint recover) -> LoadedSegment:
    """Opens the next segment, for reading; its .log is not changed.

    `recover` checks every batch and builds its indexes anew. Without it that is done only where
    an index is missing or does not fit, and otherwise a look at the end is enough. OSError if
    the disk does not answer: what it holds is not known then.
    """
    cdef Log* storage = log.storage
    cdef Segment* segment
    cdef Recovered found
    cdef int status = 0
    cdef int64_t file_bytes = 0, whole_bytes = 0
    with nogil:
        segment = segment_open(storage.directory, base_offset, kb_wall_ms(), &status)
        if segment != NULL:
            file_bytes = segment.size_bytes
            status = check_segment(
                segment, recover, storage.settings.index_bytes,
                storage.settings.index_interval_bytes, &found)
            if status == 0 and found.reason != NULL:
                # Readers go on at the next segment: a client that was sent stray bytes may abort.
                status = find_readable_end(segment, &found, &whole_bytes)
                part_of(segment).stray_bytes = file_bytes - whole_bytes
                segment.size_bytes = whole_bytes
            if status == 0:
                status = log_add_segment(storage, segment)
            if status != 0:
                segment_drop_reference(segment)
    if status != 0:
        raise _os_error(status, f"{log.directory}/{base_offset:020d}.log")
    reason = found.reason.decode("ascii") if found.reason != NULL else ""
    return LoadedSegment(
        base_offset, found.valid_bytes, file_bytes, found.next_offset,
        found.last_leader_epoch, found.batches, reason, bool(found.torn),
        bool(found.rebuilt), bool(found.has_gaps))


def unload_last_segment(LocalLog log not None) -> None:
    """Lets go of the segment loaded last, so that it can be loaded in another way."""
    cdef Log* storage = log.storage
    if storage.online or storage.segment_count == 0:
        raise InvariantError(f"{log.directory}: no segment to unload")
    with nogil:
        log_drop_segments_after(storage, storage.segment_count - 1)


def cut_last_segment(LocalLog log not None, int64_t size_bytes) -> None:
    """Cuts the file of the segment loaded last where its last sound batch ends."""
    cdef Log* storage = log.storage
    cdef int status
    if storage.online or storage.segment_count == 0:
        raise InvariantError(f"{log.directory}: no segment to cut")
    with nogil:
        status = truncate_segment(active_of(storage), size_bytes)
        if status == 0:
            # Before a segment after it has a name on the disk: a later start would find the two
            # overlapping.
            status = segment_sync_records(active_of(storage))
    if status != 0:
        raise _os_error(status, log.directory)


def activate_last_segment(LocalLog log not None, *, bint at_once) -> None:
    """The segment loaded last is the one that is appended to. Its indexes are made writable, not
    `at_once` with the first append: those of a log that was stopped in order have all entries."""
    cdef Log* storage = log.storage
    cdef int status = 0
    if storage.online or storage.segment_count == 0:
        raise InvariantError(f"{log.directory}: no segment to append to")
    with nogil:
        if at_once:
            status = segment_activate(active_of(storage), storage.settings.index_bytes)
        else:
            segment_activate_later(active_of(storage), storage.settings.index_bytes)
    if status != 0:
        raise _os_error(status, log.directory)
