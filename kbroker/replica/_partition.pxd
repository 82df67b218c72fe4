# cython: language_level=3
"""The replica of one partition as the request path sees it: leadership, and the readable offsets.

Storage is the log's (`kbroker/log/engine/_storage`): bytes, offsets, segments. This part holds the
decisions of replication: the leader and its epoch, how many replicas are in sync, the high
watermark and the last stable offset (`_high_watermark`), and the requests that wait for them.

Nothing here knows a socket or a Python object. A `Partition` lives while there is a reference to
it, and holds one to its log. Its fields are under the log's lock, of the kind
partition in the lock order: `_locked` functions want it held; all others take it themselves and
never hold it on return. Every function is `noexcept nogil` and answers with a Kafka error code,
never with errno.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.log.engine._append_follower cimport Followed
from kbroker.log.engine._storage cimport Log, lock_to_look, unlock_log
from kbroker.log.engine._types cimport Batch, Bound, FileSlice, Patience
from kbroker.log.upkeep._flush cimport FlushDepth
from kbroker.log.upkeep._retention cimport Retention
from kbroker.replica._followers cimport Follower
from kbroker.replica._partition_struct cimport Partition, Watchers


# To look at leadership and offsets, and for the list of watchers.
cdef inline void partition_lock(Partition* partition) noexcept nogil:
    lock_to_look(partition.log)

cdef inline void partition_unlock(Partition* partition) noexcept nogil:
    unlock_log(partition.log)

# Without a leader; nothing may be read beyond the log's start. One reference; NULL: no memory.
cdef Partition* partition_new(
    Log* log, int32_t partition_index, const uint8_t* topic_id) noexcept nogil
cdef void partition_acquire(Partition* partition) noexcept nogil
cdef void partition_release(Partition* partition) noexcept nogil

# Who leads, in which epoch, how many replicas are in sync with it, and who else has one: it takes
# over `fresh`, of which it reads broker_id, in_sync and registered_epoch; NULL for none. Does not
# wait for a write that is under way. 0: the lock did not come in time (`lock_log_until`), nothing
# is changed, and `fresh` is the caller's.
cdef int partition_set_leadership(
    Partition* partition, int32_t leader_id, int is_leader, int32_t leader_epoch,
    int32_t in_sync_count, Follower* fresh, int32_t count, int64_t until_ns) noexcept nogil

# A leader is about to begin another epoch, or does not after all. It appends nothing until
# partition_set_leadership(): what came in the old one would lie after the start of the new one.
# To begin waits for the write that is under way; 0: it does not end until then, and no other one
# begins.
cdef int partition_begin_epoch(
    Partition* partition, int begins, int64_t until_ns) noexcept nogil

# The log is to be cut at an offset: nothing beyond it may be read any more. 0 or an error, and then
# it must not be cut. `was_cut`: nothing beyond its end may be read, and below it a transaction may
# be open again; an error, and it is offline.
cdef int16_t partition_lower(
    Partition* partition, int64_t offset, int was_cut) noexcept nogil

# As leader: log_append_locked for the batches that may be appended; the high watermark moves along
# if it may. If the log's `flush_due` is set after it, nothing is answered before partition_flush().
# Not 0: of acks=-1 there are batches above the high watermark, which wait until
# partition_settle_locked() gives their result: `awaits_followers`.
cdef int partition_append(Partition* partition, Batch* first, int64_t now_ms) noexcept nogil

# 1: a batch that waited for the followers does not any more; its error is 0 where the high
# watermark has passed it, 20 if fewer than min.insync.replicas are in sync by then, 6 or 56 where
# this broker does not lead, has not led all the time, or has no log. The same leader in a higher
# epoch goes on waiting.
cdef int partition_settle_locked(const Partition* partition, Batch* batch) noexcept nogil

# 1: a deletion of records does not wait any more; its error is 0 where the low watermark has
# reached the `last_offset` of its batch, 6 or 56 where this broker does not lead or has no log.
cdef int partition_settle_deletion_locked(
    const Partition* partition, Batch* batch) noexcept nogil

# As follower, what the leader of that epoch sent: log_append_follower_locked. `out` has the error,
# among them 6 where this broker leads, 74 and 75 where the epoch is older or newer than its own.
cdef void partition_append_as_follower(
    Partition* partition, const uint8_t* data, int64_t length, int32_t leader_epoch,
    int64_t now_ms, Followed* out) noexcept nogil

# As follower, how far the leader's high watermark and its log's start have come: both follow, as
# far as the log goes, and never back.
cdef int16_t partition_follow_bounds(
    Partition* partition, int32_t leader_epoch, int64_t high_watermark,
    int64_t log_start_offset) noexcept nogil

# News of the high watermark that a fetch's answer can bring a follower.
cdef enum News:
    NO_NEWS = 0
    NEWS_SOON = 1                 # it has moved, or will once the others have what this one brings
    NEWS_AT_ONCE = 2              # the follower was sent none yet in this leader epoch

# The content of a follower's fetch, and its effects.
cdef struct NotedFetch:
    int32_t broker_id
    int64_t broker_epoch          # of its registration; -1: it does not say
    int32_t leader_epoch          # in which it takes us for the leader; -1: it does not say
    int64_t offset
    int64_t log_start_offset      # of its log; -1: it does not say
    int64_t now_ns
    int moved                     # high watermark or low watermark did: others may wait for that
    News news                     # of the high watermark, that it has not been sent
    int in_sync                   # the high watermark waits for it

# As leader, a follower's fetch from an offset: it has all below. The high watermark moves if it was
# the last one. 6 where this broker does not lead, 74 and 75 in which epoch; 75 (6 without an epoch)
# for a broker without a replica, 6 for an older start of it than the controller has registered, and
# for a newer one of a member of the in-sync set; 1 where the log has no such offset; then nothing
# is noted. A fetch of a newer start of another broker, which the controller has not sent yet, is
# accepted, as in Apache Kafka: it joins no in-sync set.
cdef int16_t partition_note_fetch(Partition* partition, NotedFetch* fetch) noexcept nogil

# Whether a follower shares the rate at which this leader sends to replicas out of sync.
cdef int partition_holds_back(Partition* partition, int32_t broker_id) noexcept nogil

# A write waits until the followers have this batch.
cdef void partition_note_awaited_locked(
    Partition* partition, const Batch* batch) noexcept nogil

# It is in the answer that a follower gets now.
cdef void partition_note_sent(
    Partition* partition, int32_t broker_id, int64_t high_watermark) noexcept nogil

# log_flush(), and the high watermark follows. 0 or an errno. Of the batches that waited for it,
# NULL for none, those that need not wait for followers either are settled.
cdef int partition_flush(Partition* partition, FlushDepth depth, Batch* first) noexcept nogil

# How far a fetch may read (Kafka's FetchIsolation).
cdef enum FetchIsolation:
    TO_HIGH_WATERMARK = 0
    TO_LAST_STABLE = 1            # read_committed
    TO_LOG_END = 2                # a follower

# The replicas that may answer it: consumers that can be sent to a follower (Fetch from version 11
# on) are served by any replica, up to the offset at which it knows the records to be committed.
cdef enum ReadFrom:
    FROM_LEADER = 0
    FROM_ANY_REPLICA = 1

# The offsets of the replica at one moment.
cdef struct ReplicaOffsets:
    int64_t log_start
    int64_t high_watermark
    int64_t last_stable

# Where `offset` lies, as log_slice says; never beyond the bound of the isolation, which is returned
# with the others as they were at that moment. Error 1 out of range, 6 not leader where only the
# leader may answer, and those of log_slice; then the offsets are unchanged or mean nothing.
cdef int16_t partition_read(
    Partition* partition, int64_t offset, int64_t max_bytes, int whole_first,
    FetchIsolation isolation, ReadFrom read_from, Patience patience, FileSlice* out,
    ReplicaOffsets* offsets
) noexcept nogil

# Bytes that such a read could find: what a waiting fetch asks after each append.
cdef int64_t partition_readable_bytes_locked(
    Partition* partition, int64_t offset, int64_t max_bytes, FetchIsolation isolation,
    ReadFrom read_from
) noexcept nogil

# 0 where this replica may answer, else the error that it has to tell: 6 or 56.
cdef int16_t partition_may_answer_locked(
    const Partition* partition, ReadFrom read_from) noexcept nogil

# Whether what a consumer may read ends in a later segment than the offset.
cdef int partition_in_older_segment_locked(
    Partition* partition, int64_t offset, FetchIsolation isolation) noexcept nogil

# A consistent (start, end, high watermark, last stable) read; any pointer may be NULL.
cdef void partition_offsets(
    Partition* partition, int64_t* log_start, int64_t* log_end, int64_t* high_watermark,
    int64_t* last_stable) noexcept nogil

# (epoch, end offset) as this replica knows them, -1 and -1 if it does not; an error code, or
# READ_WOULD_WAIT.
cdef int16_t partition_epoch_end(
    Partition* partition, int32_t asked, ReadFrom read_from, Patience patience, int32_t* epoch,
    int64_t* end_offset
) noexcept nogil

# Of a leader: below it no live replica has records; -1 if one has not said where its log begins.
cdef int64_t partition_low_watermark_locked(const Partition* partition) noexcept nogil

# Moves the log's start to an offset, -1 to the high watermark; `start` is where it is then.
cdef int16_t partition_delete_records(
    Partition* partition, int64_t offset, int64_t* start) noexcept nogil

# Moves it to the beginning that the topic's retention sets, as leader or not; `start` as above. 1
# if it moved.
cdef int partition_apply_retention(
    Partition* partition, const Retention* retention, int64_t now_ms, int64_t* start) noexcept nogil
