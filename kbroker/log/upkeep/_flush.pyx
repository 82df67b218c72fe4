# cython: language_level=3
"""A log on its way to the disk: after so many records or a time, at a roll, at a clean stop.

The flush that `flush.messages` requires is decided by the append, under the lock: once so many
records are after the recovery point the log's `flush_due` is set. The appending thread calls in
here before it answers, with no lock held, and until then the high watermark stays, so that no
record is read that a power cut may take back (`replica/_partition`). Several threads may flush one
log; each covers the writes before it began, and a later recovery point never goes back.

A later start begins to read at the recovery point: it reads the segment that holds it from its
beginning and makes its indexes again. So the indexes of the active segment are brought to the disk
only at a clean stop; a full segment's, before the recovery point passes it (`settled_offset`).

Where a log is cut meanwhile the sync counts for nothing: its records may be gone, and others be in
their place.

The kernel reports a lost write to one sync of the file only, drops the pages and says yes the next
time. So what the file holds is not known, and the log goes offline, as after a write that cannot be
undone. The sync of another flush, at the same time, may be the one that says yes: a flush whose
syncs succeeded waits for those that were under way then, and moves nothing if one of them failed.
"""

from libc.errno cimport EDQUOT, EINTR, EIO, ENOENT, ENOMEM, ENOSPC, errno
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport strdup

from kbroker.core._atomics cimport kb_store_i64, kb_store_int
from kbroker.core._list cimport list_remove
from kbroker.core._lock_order cimport RANK_PARTITION, wait_ranked, wake_ranked
from kbroker.core._sync cimport kb_now_ns
from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._flush_times cimport flush_note
from kbroker.log.engine._segment cimport (
    segment_add_reference, segment_drop_reference, segment_sync, segment_sync_records,
    segment_was_synced)
from kbroker.log.engine._storage cimport (
    Log, active_of, lock_log, log_is_sound_locked, log_requires, unlock_log, wait_written_locked)
from kbroker.log.engine._types cimport Segment

cdef extern from "<fcntl.h>" nogil:
    int O_CLOEXEC
    int O_DIRECTORY
    int O_RDONLY

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


cdef struct Flushing:
    # What one flush brings to the disk, as it was when it began.
    Segment** rolled              # each with a reference
    int32_t rolled_count
    Segment* active               # with a reference; NULL: left out
    int64_t active_base
    int64_t end                   # the recovery point, if all goes well
    char* directory               # in which files have appeared since it was synced, or NULL
    int64_t cuts                  # of the log
    Flushing* next                # in the log's list, under its lock
    int synced                    # its syncs are over, and a failure is noted in the log
    int64_t number                # a later flush of the log has a higher one


cdef int begin_locked(Log* log, int64_t log_end, FlushDepth depth, Flushing* it) noexcept nogil:
    cdef int32_t last = log.segment_count - 1
    cdef int32_t at
    cdef int64_t done
    if last < 0:                  # closed
        return 0
    if not log.online:            # what is lost would be taken for written
        return EIO
    if not log_is_sound_locked(log):
        return EIO
    it.cuts = log.cuts
    it.active_base = active_of(log).base_offset
    if log.named_base_offset != it.active_base:
        it.directory = strdup(log.directory)      # the log may be moved meanwhile
        if it.directory == NULL:
            return ENOMEM
    it.rolled = <Segment**>calloc(<size_t>last + 1, sizeof(Segment*))
    if it.rolled == NULL:
        return ENOMEM
    for at in range(last):
        if log.segments[at + 1].base_offset > log.settled_offset:
            it.rolled[it.rolled_count] = log.segments[at]
            segment_add_reference(log.segments[at])
            it.rolled_count += 1
    it.end = it.active_base
    if depth != FLUSH_ROLLED:
        it.end = log_end
        done = log.recovery_point if depth == FLUSH_RECORDS else log.settled_offset
        if log_end > done:
            it.active = active_of(log)
            segment_add_reference(it.active)
    return 0


cdef int sync_directory(const char* path) noexcept nogil:
    cdef int fd = files.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
    cdef int status = 0
    if fd < 0:
        return 0 if errno == ENOENT else errno    # moved, with its names on the disk, or deleted
    while files.fsync(fd) < 0:
        if errno != EINTR:
            status = errno
            break
    close(fd)
    return status


cdef int sync(Segment* segment, FlushDepth depth) noexcept nogil:
    if depth == FLUSH_SYNCED_VOLUME:
        return segment_was_synced(segment)
    if depth == FLUSH_RECORDS:
        return segment_sync_records(segment)
    return segment_sync(segment)


cdef int work(FlushDepth depth, Flushing* it) noexcept nogil:
    cdef int status = 0
    cdef int32_t at
    for at in range(it.rolled_count):
        if status == 0:
            status = sync(it.rolled[at], FLUSH_WHOLE if depth == FLUSH_RECORDS else depth)
        segment_drop_reference(it.rolled[at])
    if it.active != NULL:
        if status == 0:
            status = sync(it.active, depth)
        segment_drop_reference(it.active)
    if status == 0 and it.directory != NULL and depth != FLUSH_SYNCED_VOLUME:
        status = sync_directory(it.directory)
    return status


cdef void finish_locked(Log* log, FlushDepth depth, Flushing* it) noexcept nogil:
    cdef int64_t settled = it.active_base if depth <= FLUSH_RECORDS else it.end
    # A follower's segment may begin after the log's end, until its first batch is written.
    settled = min(settled, it.end)
    # What was brought to the disk may not be there any more, or is about to go.
    if log.cuts != it.cuts or log.being_cut:
        return
    if not log_requires(log, settled <= it.end <= log.log_end_offset,
                        "flush: the recovery point is within the log", it.end,
                        log.log_end_offset):
        return
    if it.end > log.recovery_point:
        kb_store_i64(&log.recovery_point, it.end)
    if settled > log.settled_offset:
        kb_store_i64(&log.settled_offset, settled)
    if it.active_base > log.named_base_offset:
        log.named_base_offset = it.active_base
    if it.active != NULL or it.rolled_count:
        kb_store_i64(&log.flushed_ns, kb_now_ns())
    # What was appended meanwhile waits for its own flush, unless that is less than a flush is made
    # for.
    if (log.flush_due and log.online
            and log.log_end_offset - log.recovery_point < log.settings.flush_messages):
        kb_store_int(&log.flush_due, 0)


cdef void enlist_locked(Log* log, Flushing* it) noexcept nogil:
    it.next = <Flushing*>log.flushing
    it.number = it.next.number + 1 if it.next != NULL else 1
    log.flushing = it


cdef void leave_locked(Log* log, Flushing* it) noexcept nogil:
    list_remove(&log.flushing, it, &it.next, "flush: one that ends is among those under way")


cdef int another_syncs_locked(Log* log, int64_t last_number) noexcept nogil:
    cdef Flushing* each = <Flushing*>log.flushing
    while each != NULL:
        if not each.synced and each.number <= last_number:
            return 1
        each = each.next
    return 0


cdef void note_synced_locked(Log* log, Flushing* it) noexcept nogil:
    it.synced = 1
    wake_ranked(&log.flush_synced)


cdef void await_others_locked(Log* log, Flushing* it) noexcept nogil:
    # Those that were under way when the syncs of this one ended. It is marked before: two flushes
    # never wait for each other.
    cdef int64_t last_number = (<Flushing*>log.flushing).number
    note_synced_locked(log, it)
    while another_syncs_locked(log, last_number):
        wait_ranked(&log.flush_synced, &log.lock, RANK_PARTITION)
    if log.writing_since_ns != 0:     # begun meanwhile; see lock_log
        wait_written_locked(log)


cdef int log_flush(Log* log, FlushDepth depth) noexcept nogil:
    cdef Flushing it
    cdef int64_t began_ns
    cdef int status
    it.rolled = NULL
    it.rolled_count = 0
    it.active = NULL
    it.active_base = -1
    it.end = -1
    it.directory = NULL
    it.cuts = 0
    it.synced = 0
    lock_log(log)
    status = begin_locked(log, log.log_end_offset, depth, &it)
    if status == 0 and it.rolled != NULL:
        enlist_locked(log, &it)
    unlock_log(log)
    if status == 0 and it.rolled != NULL:
        began_ns = kb_now_ns()
        status = work(depth, &it)
        if it.active != NULL or it.rolled_count:
            flush_note(log.flush_figures, kb_now_ns() - began_ns)
        lock_log(log)
        if status in (EIO, ENOSPC, EDQUOT):       # what the kernel calls a lost write
            kb_store_int(&log.online, 0)
            log.failed_flushes += 1
        await_others_locked(log, &it)
        leave_locked(log, &it)
        if status == 0 and not log.online:
            # Another flush got the error that this one's pages have met; or the log was closed.
            status = EIO if log.segment_count else 0
        elif status == 0:
            finish_locked(log, depth, &it)
        unlock_log(log)
    free(it.rolled)
    free(it.directory)
    return status


cdef int log_sync_segment(Log* log, Segment* segment) noexcept nogil:
    cdef Flushing it
    cdef int status
    it.synced = 0
    lock_log(log)
    enlist_locked(log, &it)
    unlock_log(log)
    status = segment_sync_records(segment)
    lock_log(log)
    if status != 0:
        kb_store_int(&log.online, 0)
    note_synced_locked(log, &it)
    leave_locked(log, &it)
    unlock_log(log)
    return status
