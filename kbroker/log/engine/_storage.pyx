# cython: language_level=3
"""The log of one partition: its segments in order, and the memory of where batches lie.

Readers at the tail find their batch in a ring of the last 256 appended (offset, position, size),
readers that go on where a slice ended find it among the places handed out; both cost no look into
a file. Everything here is under the log's lock. No GIL.

An append lets go of the lock while its bytes are written, as that may take long: nothing that a
reader finds has changed yet, so those who only look go on (`lock_to_look`), and those who change
the log, or want to see what is tentative, wait until it is written (`lock_log`).

A roll creates files, which takes about 0.1 ms, or on a bad disk no end: it lets go of the lock in
the same way. The next segment begins at the offset that the next batch will have. Nothing is synced
here: the flush in the background does it, and the recovery point says how far it came.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memmove, strdup

from kbroker.core._atomics cimport (
    kb_load_i64, kb_load_int, kb_load_ptr, kb_store_i64, kb_store_int)
from kbroker.core._live_objects cimport LIVE_LOGS, live_add
from kbroker.core._lock_order cimport lock_now_ns, pause_for_lock, wait_ranked, wake_ranked
from kbroker.core._require cimport (
    OF_PARTITION, drop_reference, require, require_failed, take_reference)
from kbroker.core._sync cimport (
    kb_now_ns, pthread_cond_destroy, pthread_cond_init, pthread_mutex_destroy)
from kbroker.log.engine._directory_mark cimport directory_mark_of, mark_begin, mark_end
from kbroker.log.engine._flush_times cimport flush_figures_release
from kbroker.log.engine._producer_state cimport producers_clear, producers_forget_positions
from kbroker.log.engine._segment cimport (
    INDEX_UNSOUND, part_of, segment_create, segment_drop_reference, segment_end,
    segment_reserve_end, segment_shorten)
from kbroker.log.engine._types cimport Segment

cdef enum:
    LOCK_POLL_US = 50
    SLOW_WRITE_NS = 2000000       # and a nanosecond for each byte: the page cache is faster
    SLOW_FOR_TIMES = 8            # as long as the slow write took, the next ones count as slow
    SLOW_FOR_NS_MAX = 10000000000
    STANDS_NS = 500000            # a write that lasts so long is waited for by one handler alone


cdef Log* log_new(const char* directory) noexcept nogil:
    cdef Log* log = <Log*>calloc(1, sizeof(Log))
    if log == NULL:
        return NULL
    log.directory = strdup(directory)
    log.mark = directory_mark_of(directory)
    if log.directory == NULL or log.mark == NULL or kb_mutex_init(&log.lock) != 0:
        free(log.directory)
        free(log)
        return NULL
    live_add(LIVE_LOGS, 1)
    pthread_cond_init(&log.written, NULL)
    pthread_cond_init(&log.flush_synced, NULL)
    log.refs = 1
    log.named_base_offset = -1
    handed_out_clear(log)
    return log


cdef void log_acquire(Log* log) noexcept nogil:
    take_reference(&log.refs, "log: one with a reference gets another")


cdef void log_release(Log* log) noexcept nogil:
    if log == NULL or drop_reference(&log.refs, "log: references are dropped once") > 0:
        return
    require(log.writing_since_ns == 0 and log.writing_waiters == 0 and log.flushing == NULL,
            "log: no write or flush of one that is freed", log.writing_since_ns, 0)
    log_drop_segments_after(log, 0)
    pthread_cond_destroy(&log.written)
    pthread_cond_destroy(&log.flush_synced)
    pthread_mutex_destroy(&log.lock)
    live_add(LIVE_LOGS, -1)
    producers_clear(&log.producers)
    free(log.segments)
    free(log.recent)
    free(log.warm)
    free(log.epochs)
    flush_figures_release(log.flush_figures)
    free(log.directory)
    free(log)


# --- What must hold ------------------------------------------------------------------------------

cdef int log_distrust(
    Log* log, const char* text, int64_t found, int64_t required
) noexcept nogil:
    kb_store_int(&log.online, 0)
    return require_failed(OF_PARTITION, -1, log.directory, text, found, required)


cdef int log_is_sound_locked(Log* log) noexcept nogil:
    cdef Segment* active
    if not log_requires(log, 0 < log.segment_count <= log.segment_max,
                        "log: it has an active segment", log.segment_count, log.segment_max):
        return 0
    active = active_of(log)
    return (
        log_requires(log, kb_load_int(&active.refs) > 0 and active.index != NULL,
                     "log: the active segment is held", active.refs, 1)
        and log_requires(log, active.fd >= 0, "log: the active segment is open", active.fd, 0)
        and log_requires(log, active.size_bytes >= 0, "log: the active segment has a size",
                         active.size_bytes, 0)
        and log_requires(log, log.log_end_offset >= active.base_offset or active.size_bytes == 0,
                         "log: it ends in the active segment", log.log_end_offset,
                         active.base_offset)
        and log_requires(log, 0 <= log.log_start_offset <= log.log_end_offset,
                         "log: it starts at or before its end", log.log_start_offset,
                         log.log_end_offset)
        and log_requires(log, log.recovery_point <= log.log_end_offset,
                         "log: no more is on the disk than was written", log.recovery_point,
                         log.log_end_offset)
        and log_requires(log, log.settled_offset <= log.log_end_offset,
                         "log: no more is settled than was written", log.settled_offset,
                         log.log_end_offset)
        and log_requires(log, log.recent_count <= RECENT_BATCHES and log.recent_count >= 0,
                         "log: recent batches fit their ring", log.recent_count, RECENT_BATCHES)
    )


# --- The lock -------------------------------------------------------------------------------------

cdef void begin_writing_locked(Log* log, int64_t size_bytes) noexcept nogil:
    cdef int64_t now_ns = kb_now_ns()
    require(log.writing_since_ns == 0, "log: one writes at a time", log.writing_since_ns, 0)
    kb_store_i64(&log.writing_since_ns, now_ns)
    log.noted_ns = mark_begin(log.mark, now_ns + SLOW_WRITE_NS + size_bytes)
    unlock_ranked(&log.lock, RANK_PARTITION)


cdef void begin_step_locked(Log* log) noexcept nogil:
    require(log.writing_since_ns == 0, "log: a step is not within a write",
            log.writing_since_ns, 0)
    kb_store_i64(&log.writing_since_ns, kb_now_ns())
    unlock_ranked(&log.lock, RANK_PARTITION)


cdef void end_step_locked(Log* log) noexcept nogil:
    lock_ranked(&log.lock, RANK_PARTITION)
    kb_store_i64(&log.writing_since_ns, 0)
    if log.writing_waiters:
        wake_ranked(&log.written)


cdef void end_writing_locked(Log* log, int64_t size_bytes) noexcept nogil:
    cdef int64_t now_ns = kb_now_ns()
    cdef int64_t took_ns = now_ns - log.writing_since_ns
    require(log.writing_since_ns != 0, "log: who ends a write has begun it", 0, 1)
    mark_end(log.mark, log.noted_ns)
    lock_ranked(&log.lock, RANK_PARTITION)
    kb_store_i64(&log.writing_since_ns, 0)
    if took_ns > SLOW_WRITE_NS + size_bytes:
        kb_store_i64(
            &log.slow_until_ns,
            now_ns + min(SLOW_FOR_TIMES * took_ns, <int64_t>SLOW_FOR_NS_MAX))
    elif log.slow_until_ns != 0 and log.slow_until_ns < now_ns:
        kb_store_i64(&log.slow_until_ns, 0)
    if log.writing_waiters:
        wake_ranked(&log.written)


cdef void wait_written_locked(Log* log) noexcept nogil:
    log.writing_waiters += 1
    while log.writing_since_ns != 0:
        wait_ranked(&log.written, &log.lock, RANK_PARTITION)
    log.writing_waiters -= 1


cdef int lock_log_until(Log* log, int64_t until_ns, int to_change) noexcept nogil:
    if until_ns == NEVER_GIVES_UP:
        if to_change:
            lock_log(log)
        else:
            lock_to_look(log)
        return 1
    while True:
        if try_lock_ranked(&log.lock, RANK_PARTITION):
            if not to_change or log.writing_since_ns == 0:
                return 1
            unlock_log(log)
        if lock_now_ns() >= until_ns:
            return 0
        pause_for_lock(LOCK_POLL_US)


cdef int log_is_slow(Log* log) noexcept nogil:
    return writing_is_slow(&log.writing_since_ns, &log.slow_until_ns)


cdef int64_t* log_late_from_ns(Log* log) noexcept nogil:
    return &(<DirectoryMark*>kb_load_ptr(<void**>&log.mark)).late_from_ns


cdef int writing_is_slow(int64_t* writing_since_ns, int64_t* slow_until_ns) noexcept nogil:
    cdef int64_t since_ns = kb_load_i64(writing_since_ns)
    cdef int64_t until_ns = kb_load_i64(slow_until_ns)
    cdef int64_t now_ns
    if since_ns == 0 and until_ns == 0:
        return 0
    now_ns = kb_now_ns()
    if since_ns != 0 and now_ns - since_ns > STANDS_NS:
        return WRITE_HANGS
    return WRITE_WAS_SLOW if now_ns < until_ns else 0


# --- Segments -------------------------------------------------------------------------------------

cdef int make_room(Log* log) noexcept nogil:
    # For one segment more.
    cdef Segment** segments
    cdef int32_t wanted
    if log.segment_count == log.segment_max:
        wanted = log.segment_max * 2 if log.segment_max else 4
        segments = <Segment**>realloc(log.segments, <size_t>wanted * sizeof(Segment*))
        if segments == NULL:
            return ENOMEM
        log.segments = segments
        log.segment_max = wanted
    return 0


cdef int log_add_segment(Log* log, Segment* segment) noexcept nogil:
    cdef int status = make_room(log)
    if status == 0:
        log.segments[log.segment_count] = segment
        log.segment_count += 1
        if part_of(segment).aborted.count:
            kb_store_int(&log.has_aborted, 1)
    return status


cdef void log_drop_segments_after(Log* log, int32_t keep) noexcept nogil:
    while log.segment_count > keep:
        log.segment_count -= 1
        segment_drop_reference(log.segments[log.segment_count])


cdef int32_t log_find_segment(const Log* log, int64_t offset) noexcept nogil:
    cdef int32_t low = 0, high = log.segment_count, middle
    # The tail first: most reads are there.
    if high and log.segments[high - 1].base_offset <= offset:
        return high - 1
    while low < high:
        middle = low + (high - low) / 2
        if log.segments[middle].base_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef int log_has_segment(const Log* log, const Segment* segment) noexcept nogil:
    cdef int32_t at = log_find_segment(log, segment.base_offset)
    return at >= 0 and log.segments[at] == segment


cdef int32_t log_find_sealed(
    const Log* log, Segment* const* segments, int32_t count
) noexcept nogil:
    cdef int32_t at = log_find_segment(log, segments[0].base_offset)
    cdef int32_t member
    if at < 0 or at + count >= log.segment_count:
        return -1
    for member in range(count):
        if log.segments[at + member] != segments[member]:
            return -1
    return at


cdef int log_replace_segments(
    Log* log, int32_t at, int32_t count, Segment* fresh
) noexcept nogil:
    cdef int32_t old
    if not log_requires(log, 0 <= at and 0 < count <= log.segment_count - at,
                        "segments: those that are replaced are the log's", at + count,
                        log.segment_count):
        return 0
    if part_of(fresh).aborted.count:
        kb_store_int(&log.has_aborted, 1)
    for old in range(at, at + count):
        producers_forget_positions(&log.producers, log.segments[old].base_offset)
        segment_drop_reference(log.segments[old])
    log.segments[at] = fresh
    memmove(log.segments + at + 1, log.segments + at + count,
            <size_t>(log.segment_count - at - count) * sizeof(Segment*))
    log.segment_count -= count - 1
    handed_out_clear(log)
    free(log.warm)
    log.warm = NULL
    log.warm_next = 0
    return 1


cdef int64_t log_size_bytes(const Log* log) noexcept nogil:
    cdef int64_t total = 0
    cdef int32_t at
    for at in range(log.segment_count):
        total += log.segments[at].size_bytes
    return total


cdef Bound log_end_locked(const Log* log) noexcept nogil:
    cdef Bound end
    end.offset = log.log_end_offset
    end.segment_base = log.segments[log.segment_count - 1].base_offset
    end.position = log.segments[log.segment_count - 1].size_bytes
    return end


cdef int log_roll(Log* log, int64_t base_offset, int64_t now_ms) noexcept nogil:
    cdef int status, end_status, has_room, too_long
    cdef Segment* ended = active_of(log)
    cdef Segment* following
    if ended.base_offset >= base_offset:    # it is empty and may simply go on
        return 0
    status = make_room(log)
    if status != 0:
        return status
    # Only who looks comes by from here on: the list of segments and its room stay as they are.
    begin_writing_locked(log, 0)
    following = segment_create(
        log.directory, base_offset, log.settings.index_bytes, now_ms, &status)
    if following != NULL:
        has_room = segment_reserve_end(ended, &end_status)
        lock_ranked(&log.lock, RANK_PARTITION)
        # From here on nothing can fail that would leave the new files unused. A seal that fails
        # leaves index files too long; recovery or the next open writes them anew.
        too_long = segment_end(ended, has_room)
        if too_long & INDEX_UNSOUND:
            kb_store_int(&log.online, 0)
        log_add_segment(log, following)
        recent_clear(log)
        log.rolls += 1
        unlock_ranked(&log.lock, RANK_PARTITION)
        segment_shorten(ended, too_long)
        status = 0
    end_writing_locked(log, 0)
    return status


cdef void log_seal(Log* log) noexcept nogil:
    """Ends the indexes of the last segment, as a roll does; who looks comes by meanwhile."""
    cdef Segment* ended
    cdef int status, has_room, too_long
    if log.segment_count == 0:
        return
    ended = active_of(log)
    begin_writing_locked(log, 0)
    has_room = segment_reserve_end(ended, &status)
    lock_ranked(&log.lock, RANK_PARTITION)
    too_long = segment_end(ended, has_room)
    if too_long & INDEX_UNSOUND:
        kb_store_int(&log.online, 0)
    unlock_ranked(&log.lock, RANK_PARTITION)
    segment_shorten(ended, too_long)
    end_writing_locked(log, 0)


# --- Where recent batches lie ---------------------------------------------------------------------

cdef void recent_clear(Log* log) noexcept nogil:
    log.recent_first = 0
    log.recent_count = 0


cdef inline RecentBatch* recent_at(Log* log, int32_t at) noexcept nogil:
    return &log.recent[(log.recent_first + at) & (RECENT_BATCHES - 1)]


cdef void recent_add(
    Log* log, int64_t base_offset, int64_t position, int64_t size_bytes
) noexcept nogil:
    cdef RecentBatch* batch
    if log.recent == NULL:
        log.recent = <RecentBatch*>malloc(RECENT_BATCHES * sizeof(RecentBatch))
        if log.recent == NULL:
            return                # readers look into the file instead
    if log.recent_count == RECENT_BATCHES:
        log.recent_first = (log.recent_first + 1) & (RECENT_BATCHES - 1)
        log.recent_count -= 1
    batch = recent_at(log, log.recent_count)
    log.recent_count += 1
    batch.base_offset = base_offset
    batch.position = <int32_t>position
    batch.size_bytes = <int32_t>size_bytes


cdef RecentBatch* recent_find(Log* log, int64_t offset, int64_t log_end_offset) noexcept nogil:
    # The batch that holds an offset; no offset between those in the ring is missing.
    cdef int32_t low = 0, high = log.recent_count, middle
    if high == 0 or offset >= log_end_offset or offset < recent_at(log, 0).base_offset:
        return NULL
    if offset >= recent_at(log, high - 1).base_offset:
        return recent_at(log, high - 1)
    while low < high:
        middle = low + (high - low) / 2
        if recent_at(log, middle).base_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return recent_at(log, low - 1)


cdef void handed_out_clear(Log* log) noexcept nogil:
    cdef int at
    for at in range(HANDED_OUT):
        log.handed_out[at].offset = -1


cdef void handed_out_note(
    Log* log, int64_t offset, int64_t segment_base, int64_t position, int64_t size_bytes
) noexcept nogil:
    cdef HandedOut* place = handed_out_find(log, offset, segment_base)
    if place == NULL:
        place = &log.handed_out[log.handed_out_next]
        log.handed_out_next = (log.handed_out_next + 1) % HANDED_OUT
    place.offset = offset
    place.segment_base = segment_base
    place.position = position
    place.size_bytes = size_bytes


cdef HandedOut* handed_out_find(Log* log, int64_t offset, int64_t segment_base) noexcept nogil:
    cdef int at
    for at in range(HANDED_OUT):
        if log.handed_out[at].offset == offset and log.handed_out[at].segment_base == segment_base:
            return &log.handed_out[at]
    return NULL
