# cython: language_level=3
"""The partition as the hot path sees it: the C contract between `_log` and whoever holds requests.

Nothing here knows a socket or a Python object. A `Partition` lives while somebody holds a
reference; a `FileSlice` keeps its `Segment` (and so the file descriptor) alive whatever retention,
truncation or deletion do meanwhile. Every function is `noexcept nogil` and answers with a Kafka
error code, never with errno.

Locks: `Partition.lock` is the third in the order table, session, partition, queue. `_locked`
functions want it held; all others take it themselves and never hold it on return. While an append
writes its bytes the lock is free: who only looks goes on, who changes the log waits for the write
(`_storage.pxd`).
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker._arena cimport Arena
from kbroker._sync cimport pthread_cond_t, pthread_mutex_t


cdef struct Segment:
    int refs                      # atomic: one for the partition's list, one for every slice lent
    int fd                        # the .log file
    int64_t base_offset
    int64_t size_bytes            # atomic; published after the write
    void* index                   # the owner's own part: indexes, largest timestamp, paths


cdef struct FileSlice:
    Segment* segment              # one reference; slice_release() drops it; NULL when length is 0
    int fd
    int64_t position
    int64_t length
    int cold                      # not all of it is in memory: who reads it now may wait


cdef struct Batch:
    # One record batch as it stands in a produce request's frame; patched in place.
    uint8_t* data
    uint32_t length_bytes         # all of it, from base offset to the last record
    uint32_t sent_bytes           # what max.message.bytes bounds, where not length_bytes; or 0
    int8_t acks                   # the request's: -1 is checked against min.insync.replicas
    int8_t api_version            # the request's (zstd needs >= 7)
    int8_t prechecked             # its compressed records were validated by the caller
    int8_t repacked               # the caller has what is stored instead of it
    int8_t awaits_flush           # for the caller: its partition was due when it was appended
    int16_t error                 # in and out: a Kafka error code; not 0: the batch is left out
    int32_t error_record          # index of the record at fault, or -1
    const char* error_message     # static text or NULL
    int8_t tells_message          # the text is for the client, though no record of it is at fault
    Arena* arena                  # where bad_records may be; NULL: only the first is told
    int32_t* bad_records          # place * 2, + 1 where it is the timestamp; bad_record_text()
    int32_t bad_record_count
    int64_t* unpacked_left        # of what all batches of its request may unpack to; NULL: no bound
    int64_t base_offset           # out, -1 unless appended (or a duplicate: the first one's)
    int64_t append_time_ms        # out, -1 for CreateTime
    int64_t log_start_offset      # out; -1 if the batch did not come as far as the log
    Batch* next                   # the next batch of the same partition's group, arrival order
    # filled by partition_validate:
    int8_t codec                  # 0 none 1 gzip 2 snappy 3 lz4 4 zstd
    int16_t attributes
    int16_t producer_epoch
    int32_t record_count
    int32_t base_sequence
    int64_t producer_id
    int64_t max_timestamp_ms
    int64_t last_offset           # out, of the last record, once appended


cdef struct Partition:
    int refs                      # atomic
    pthread_mutex_t lock
    int64_t writing_since_ns      # atomic: bytes go to the file, without the lock; 0: none do
    int64_t slow_until_ns         # atomic: till then its writes count as slow
    int writing_waiters           # who wants to change the log when the bytes are there
    pthread_cond_t written
    int32_t partition_index
    uint8_t topic_id[16]
    # Leadership, written under the lock by the replica layer.
    int8_t online                 # 0: closed, deleted or its directory failed
    int32_t leader_id             # this broker's id when it leads
    int8_t is_leader
    int32_t leader_epoch
    int32_t in_sync_count
    # Offsets. Written under the lock after the write; read through partition_offsets().
    int64_t log_start_offset
    int64_t log_end_offset
    int64_t high_watermark
    int64_t last_stable_offset
    # Topic configuration, written under the lock.
    int32_t min_in_sync
    int32_t max_message_bytes
    int8_t log_append_time        # message.timestamp.type
    int recompress                # atomic: compression.type is not 'producer'; partition_repacks
    int8_t compacted              # null keys are refused
    # Owned by the request path: fetches that wait for this partition, and its own flag.
    void* watchers                # under the lock
    int has_watchers              # atomic; set before the last look, read after an append
    int flush_due                 # atomic; as above: what was appended waits for partition_flush()
    # Counters, atomic.
    int64_t appended_bytes
    int64_t appended_records
    int64_t appended_batches
    int64_t refused_produces      # batches answered with an error
    int64_t rejected_bytes        # of those that were too large
    int64_t fetches               # reads for fetch requests
    int64_t refused_fetches
    int64_t fetched_bytes
    void* log                     # the owner's own part


cdef enum:
    READ_WOULD_WAIT = 32000       # no code of Kafka's


# What partition_validate answers beside a Kafka error in batch.error:
cdef enum ValidateVerdict:
    VALIDATED = 0                 # batch.error says how
    NEEDS_PYTHON = 1              # compressed with a codec that C cannot open here

# Whether the topic stores this batch under another codec than its own, which is for Python.
cdef int partition_repacks(Partition* partition, const Batch* batch) noexcept nogil

# Without the lock: CRC-32C, header, every record walked (compressed ones through a fixed window).
cdef int partition_validate(Partition* partition, Batch* batch, int64_t now_ms) noexcept nogil

# Group append: takes the lock; every batch of the list with error 0 in one writev (split at IOV_MAX
# and at a roll); duplicates answered with the first's offset; indexes, producer state, offsets.
# With in_sync_count == 1 the high watermark moves along. A failed write: 56 for the whole group.
# If `flush_due` stands behind it, nothing is answered before partition_flush(FLUSH_RECORDS), which
# moves the high watermark (`_flush.pxd`).
cdef void partition_append(Partition* partition, Batch* first, int64_t now_ms) noexcept nogil

# Whether an append is likely to stand: one has been writing for long, or wrote slowly of late.
cdef int partition_is_slow(Partition* partition) noexcept nogil
# The same of writes that somebody else marks so: since when, till when (both atomic; 0: not).
cdef int writing_is_slow(int64_t* writing_since_ns, int64_t* slow_until_ns) noexcept nogil

# Where `offset` lies: a slice from the start of the batch that holds it, at most max_bytes long
# (cut anywhere, as Kafka does), except that with `whole_first` a first batch larger than that is
# given whole, and without it a first batch that would be cut gives an empty slice. Never beyond
# the high watermark (or last stable offset with read_committed). Error 1 out of range, 6 not
# leader, 56 storage; without `may_wait` also READ_WOULD_WAIT, where finding it needs the disk.
cdef int16_t partition_read(
    Partition* partition, int64_t offset, int64_t max_bytes, int whole_first, int read_committed,
    int may_wait, FileSlice* out) noexcept nogil

# A consistent (start, end, high watermark, last stable) read; any pointer may be NULL.
cdef void partition_offsets(
    Partition* partition, int64_t* log_start, int64_t* log_end, int64_t* high_watermark,
    int64_t* last_stable) noexcept nogil

# Bytes between `offset`'s batch and the high watermark, capped at max_bytes, without touching the
# file for a tail reader: what a waiting fetch asks after each append, with the lock held.
cdef int64_t partition_readable_bytes(
    Partition* partition, int64_t offset, int64_t max_bytes, int read_committed) noexcept nogil
cdef int64_t partition_readable_bytes_locked(
    Partition* partition, int64_t offset, int64_t max_bytes, int read_committed) noexcept nogil
# Whether the high watermark is in a later segment than the offset, with the lock held.
cdef int partition_in_older_segment_locked(Partition* partition, int64_t offset) noexcept nogil

cdef void slice_release(FileSlice* slice) noexcept nogil
cdef void segment_acquire(Segment* segment) noexcept nogil
cdef void segment_release(Segment* segment) noexcept nogil
cdef void partition_acquire(Partition* partition) noexcept nogil
cdef void partition_release(Partition* partition) noexcept nogil
# To look at leadership and offsets, and for the list of watchers.
cdef void partition_lock(Partition* partition) noexcept nogil
cdef void partition_unlock(Partition* partition) noexcept nogil

# --- For the log's Python face and the replica layer ----------------------------------------------

# A partition that is offline, has no segment and leads nothing. One reference; NULL: no memory.
cdef Partition* partition_new(
    const char* directory, int32_t partition_index, const uint8_t* topic_id) noexcept nogil

# Where this replica stands. With one replica in sync the high watermark moves to the log's end.
cdef void partition_set_leadership(
    Partition* partition, int32_t leader_id, int is_leader, int32_t leader_epoch,
    int32_t in_sync_count) noexcept nogil

# The high watermark of a partition with followers. 0 or a Kafka error code.
cdef int16_t partition_set_high_watermark(Partition* partition, int64_t offset) noexcept nogil
