# cython: language_level=3
"""The log of one partition: its segments, where recent batches lie, the settings.

A log knows bytes and offsets; leadership and the readable offsets are the replica's
(`kbroker/replica/_partition`). It lives while there is a reference to it.

Locks: `Log.lock` is of the kind partition in the lock order (`_lock_order`); the replica's fields
are under it too. `_locked` functions want it held; all others take it themselves and never hold it
on return. While an append writes its bytes, or makes the files of its next segment, the lock is
free: who only looks goes on, who changes the log waits for the write.
"""

from libc.stdint cimport int32_t, int64_t

from kbroker.core._lock_order cimport RANK_PARTITION, lock_ranked, try_lock_ranked, unlock_ranked
from kbroker.core._require cimport kb_likely
from kbroker.core._sync cimport pthread_cond_t, pthread_mutex_t
from kbroker.log.engine._directory_mark cimport DirectoryMark
from kbroker.log.engine._flush_times cimport FlushFigures
from kbroker.log.engine._producer_state cimport ProducerTable
from kbroker.log.engine._types cimport WAITS_FOR_NOTHING, Bound, Patience, Segment

cdef extern from "debug.h" nogil:
    int kb_mutex_init(pthread_mutex_t* mutex)


cdef enum:
    RECENT_BATCHES = 256          # of the active segment: 4 KB, once something is appended
    HANDED_OUT = 8                # places where sequential readers will go on
    WARM_STRETCHES = 8            # seen in memory of late, older than the tail


cdef struct RecentBatch:
    int64_t base_offset
    int32_t position
    int32_t size_bytes


cdef struct HandedOut:
    int64_t offset                # the batch that holds it begins at `position`; -1: free
    int64_t segment_base
    int64_t position
    int64_t size_bytes            # of that batch, 0 if not known


cdef struct WarmStretch:
    int64_t segment_base
    int64_t start                 # positions in its file
    int64_t end
    int64_t until_ns              # as long as that is taken for true


cdef struct Settings:
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms     # already drawn, taken off segment_ms
    int64_t index_interval_bytes
    int64_t index_bytes
    int64_t flush_messages        # unflushed records that make a flush due; INT64_MAX: never
    int32_t min_in_sync           # replicas, for acks=-1: the replica asks


cdef enum:
    RULE_COMPACTED = 1
    RULE_LOG_APPEND_TIME = 2
    RULE_RECOMPRESS = 4           # to the codec whose number is in the bits from RULE_CODEC_AT on
    RULE_CODEC_AT = 8


cdef struct TopicRules:
    # What validation asks of a batch. Written under the lock, read without it: atomic, each alone.
    int64_t flags
    int64_t max_message_bytes
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms


cdef struct EpochStart:
    int32_t epoch
    int64_t start_offset


cdef struct Log:
    int refs                      # atomic
    pthread_mutex_t lock
    int64_t writing_since_ns      # atomic: bytes go to the file, without the lock; 0: none do
    int64_t slow_until_ns         # atomic: till then its writes count as slow
    DirectoryMark* mark           # atomic: of its data directory
    int64_t noted_ns              # what the write under way has noted in the mark
    int writing_waiters           # who wants to change the log when the bytes are there
    pthread_cond_t written
    int online                    # atomic; 0: closed, deleted or its directory failed
    # Written under the lock, after the bytes; each may be read without it.
    int64_t log_start_offset
    int64_t log_end_offset
    int flush_due                 # atomic: what was appended waits for log_flush()
    char* directory
    Settings settings
    TopicRules rules
    Segment** segments            # by base offset; the last one is active
    int32_t segment_count
    int32_t segment_max
    int64_t recovery_point        # everything below is on the disk, not only in the page cache
    int64_t settled_offset        # the same with indexes; may lag in the active segment
    int64_t named_base_offset     # of the newest file whose name is on the disk; -1: none
    int64_t cuts                  # how often its end was taken away: see _truncate.pyx
    int being_cut                 # no flush moves its points
    void* flushing                # the flushes that are under way, a list of _flush.pyx
    pthread_cond_t flush_synced   # one of them has the result of its syncs
    int refuses_producers         # atomic: its data directory is nearly full
    int64_t flushed_ns            # atomic: when something was brought to the disk last
    FlushFigures* flush_figures   # a reference; NULL: its flushes are not counted
    RecentBatch* recent           # a ring, oldest first at recent_first
    int32_t recent_first
    int32_t recent_count
    HandedOut handed_out[HANDED_OUT]
    int32_t handed_out_next
    WarmStretch* warm             # NULL before the first read of records older than the tail
    int32_t warm_next
    ProducerTable producers
    int has_aborted               # atomic: a segment may have aborted transactions
    EpochStart* epochs            # oldest first; see _epochs.pyx
    int32_t epoch_count
    # Counters, atomic.
    int64_t appended_bytes
    int64_t appended_records
    int64_t appended_batches
    int64_t replicated_bytes      # appended as the leader sent them; not among those above
    # Counters, under the lock.
    int64_t rolls
    int64_t writes
    int64_t failed_writes
    int64_t failed_flushes
    int64_t duplicates
    int64_t file_scans            # reads that had to look into the .log
    int64_t fast_reads            # those that did not


cdef inline Segment* active_of(Log* log) noexcept nogil:
    return log.segments[log.segment_count - 1]

# To change the log, or to see it whole: after the write in progress.
cdef inline void lock_log(Log* log) noexcept nogil:
    lock_ranked(&log.lock, RANK_PARTITION)
    if log.writing_since_ns != 0:
        wait_written_locked(log)

# To look: also while bytes are written, which are not part of the log yet.
cdef inline void lock_to_look(Log* log) noexcept nogil:
    lock_ranked(&log.lock, RANK_PARTITION)

# The same for callers that may not wait for a roll: 0, the lock is held elsewhere.
cdef inline int lock_to_look_if(Log* log, Patience patience) noexcept nogil:
    if patience == WAITS_FOR_NOTHING:
        return try_lock_ranked(&log.lock, RANK_PARTITION)
    lock_to_look(log)
    return 1

# The same for callers that wait till a moment, NEVER_GIVES_UP or none (0): 0, it came and the lock
# did not. `to_change`: not while bytes are written.
cdef enum:
    NEVER_GIVES_UP = -1
cdef int lock_log_until(Log* log, int64_t until_ns, int to_change) noexcept nogil

cdef inline void unlock_log(Log* log) noexcept nogil:
    unlock_ranked(&log.lock, RANK_PARTITION)

# Around the writing of an append's bytes, of which so many go out, or the making of a segment's
# files: others may look meanwhile.
cdef void begin_writing_locked(Log* log, int64_t size_bytes) noexcept nogil
cdef void end_writing_locked(Log* log, int64_t size_bytes) noexcept nogil
cdef void wait_written_locked(Log* log) noexcept nogil
# The same around a step that takes long on a sound disk, too: it says nothing of the disk.
cdef void begin_step_locked(Log* log) noexcept nogil
cdef void end_step_locked(Log* log) noexcept nogil

# Whether an append is likely to stand: 0, or what speaks for it.
cdef enum:
    WRITE_WAS_SLOW = 1            # the last one, of late
    WRITE_HANGS = 2               # one has been under way for long

cdef int log_is_slow(Log* log) noexcept nogil
# The mark of its data directory, as it is now: see _directory_mark.
cdef int64_t* log_late_from_ns(Log* log) noexcept nogil
# As log_is_slow of writes that another struct marks so: since when, till when (both atomic; 0:
# not).
cdef int writing_is_slow(int64_t* writing_since_ns, int64_t* slow_until_ns) noexcept nogil

# A condition on a log. 0 where it does not hold: that is counted and reported, and the log is
# offline from here on, so that clients get KAFKA_STORAGE_ERROR; the caller stops.
cdef int log_distrust(
    Log* log, const char* text, int64_t found, int64_t required) noexcept nogil

cdef inline int log_requires(
    Log* log, int holds, const char* text, int64_t found, int64_t required
) noexcept nogil:
    return 1 if kb_likely(holds) else log_distrust(log, text, found, required)

# Before something is written at its end: the active segment and the offsets are sound.
cdef int log_is_sound_locked(Log* log) noexcept nogil

# Offline, without a segment. One reference; NULL: no memory.
cdef Log* log_new(const char* directory) noexcept nogil
cdef void log_acquire(Log* log) noexcept nogil
cdef void log_release(Log* log) noexcept nogil

# Adds a segment at the end and takes over its reference. 0 or ENOMEM.
cdef int log_add_segment(Log* log, Segment* segment) noexcept nogil
# Drops the segments after the first `keep`.
cdef void log_drop_segments_after(Log* log, int32_t keep) noexcept nogil
# Index of the segment that holds an offset, or -1 where it lies below all.
cdef int32_t log_find_segment(const Log* log, int64_t offset) noexcept nogil
# Whether it is still the log's: one whose end was cut off, or that was dropped, is not.
cdef int log_has_segment(const Log* log, const Segment* segment) noexcept nogil
# The place of the first of these neighbours; -1: they are not all the log's, or one is its last.
cdef int32_t log_find_sealed(
    const Log* log, Segment* const* segments, int32_t count) noexcept nogil
# Puts one in the place of `count` from place `at` on, and takes over its reference; theirs are
# dropped. Known places in their files are forgotten. 0: there are not so many, and the log is
# offline.
cdef int log_replace_segments(
    Log* log, int32_t at, int32_t count, Segment* fresh) noexcept nogil
cdef int64_t log_size_bytes(const Log* log) noexcept nogil

# Where the log ends, in its files too.
cdef Bound log_end_locked(const Log* log) noexcept nogil

# Ends the active segment and begins one at `base_offset`. 0 or an errno, and nothing has changed.
# The lock is free while files are made, as it is while bytes are written.
cdef int log_roll(Log* log, int64_t base_offset, int64_t now_ms) noexcept nogil
cdef void log_seal(Log* log) noexcept nogil

# The recent batches of the active segment.
cdef void recent_clear(Log* log) noexcept nogil
cdef void recent_add(
    Log* log, int64_t base_offset, int64_t position, int64_t size_bytes) noexcept nogil
cdef RecentBatch* recent_find(Log* log, int64_t offset, int64_t log_end_offset) noexcept nogil

cdef void handed_out_note(
    Log* log, int64_t offset, int64_t segment_base, int64_t position, int64_t size_bytes
) noexcept nogil
cdef HandedOut* handed_out_find(Log* log, int64_t offset, int64_t segment_base) noexcept nogil
cdef void handed_out_clear(Log* log) noexcept nogil
