# cython: language_level=3
"""One segment: its .log file and both indexes; and the scan over batch headers in a file."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.core._atomics cimport kb_load_i64
from kbroker.log.engine._aborted_index cimport AbortedIndex
from kbroker.log.engine._index cimport Index
from kbroker.log.engine._types cimport FileSlice, Segment
from kbroker.log.engine._records cimport Header


cdef struct SegmentPart:
    # The type of Segment.index. Under the partition's lock.
    Index offsets
    Index times
    char* log_path
    char* offsets_path
    char* times_path
    AbortedIndex aborted
    char* aborted_path
    int rebuilds_aborted          # its index of these was dropped; a replay of it writes it anew
    int has_markers               # then: of transactions
    char* former_paths[2]         # of the indexes, before a renaming: a sync may be using them
    int64_t max_timestamp_ms      # of any batch, -1 for none
    int64_t max_timestamp_offset  # the last offset of the batch that brought it
    # The last entry of its time index, where it was opened and that is believed so far; -1: it is
    # not. An entry has no CRC. See `_retention`.
    int64_t believed_offset
    int64_t believed_ms
    int64_t first_timestamp_ms    # of the first batch, what the roll by time counts from; -1: none
    int64_t index_bytes           # of indexes that are to be writable with the next append; or 0
    int64_t created_ms            # when it was created or opened: the roll's, without timestamps
    int64_t bytes_since_entry
    int64_t largest_batch_bytes   # atomic; INT64_MAX where it is not known
    int64_t stray_bytes           # at its file's end, beyond `size_bytes`: no whole batches
    # Up to here its file was opened as it was: a reader has to look whether batch follows batch
    # there, but for the range in which one has. Under the partition's lock.
    int64_t unseen_end
    int64_t seen_from
    int64_t seen_to
    int may_hold_empty            # atomic: batches without records; 1 where it is not known
    # Of all its batches, where a recovery has read them since the last append: otherwise INT32_MAX,
    # and 1.
    int32_t largest_leader_epoch
    int has_producers


cdef enum:
    SCAN_CHUNK_BYTES = 4096


cdef struct Scan:
    # A walk over the batch headers of a file, from `position` to `limit`.
    int fd
    int must_not_wait             # for the disk: where it would, -1 is answered, `status` is EAGAIN
    int64_t position
    int64_t limit
    Header header                 # of the batch at `position`, after scan_next answered 1
    int64_t chunk_position
    int64_t chunk_bytes
    int status                    # after -1: the errno of a read that failed; 0: damage
    int torn                      # after -1 and 0: a batch begins that is longer than the rest
    int64_t chunk_bytes_max       # to be read at once
    const uint8_t* copy           # of `copy_bytes` of the file; 0: there is none
    int64_t copy_position
    int64_t copy_bytes
    uint8_t chunk[SCAN_CHUNK_BYTES]


cdef inline SegmentPart* part_of(Segment* segment) noexcept nogil:
    return <SegmentPart*>segment.index

# Of its file, with the bytes that are never sent.
cdef inline int64_t segment_file_bytes(Segment* segment) noexcept nogil:
    return kb_load_i64(&segment.size_bytes) + part_of(segment).stray_bytes

# NULL and an errno in `status` if it cannot be opened or created; then a creation leaves no file of
# its name. The caller owns one reference. An opened one is for reading.
cdef Segment* segment_create(
    const char* directory, int64_t base_offset, int64_t index_bytes, int64_t now_ms, int* status
) noexcept nogil
# The same whose files' names end with `tail`.
cdef Segment* segment_create_named(
    const char* directory, int64_t base_offset, const char* tail, int64_t index_bytes,
    int64_t now_ms, int* status) noexcept nogil
# Its files have been given names that end so. 0 or ENOMEM, and nothing has changed.
cdef int segment_renamed(
    Segment* segment, const char* directory, const char* tail) noexcept nogil
cdef void segment_unlink(Segment* segment) noexcept nogil
cdef Segment* segment_open(
    const char* directory, int64_t base_offset, int64_t now_ms, int* status) noexcept nogil
# Makes its indexes writable, keeping the entries that the files have. 0 or an errno.
cdef int segment_activate(Segment* segment, int64_t index_bytes) noexcept nogil
# The same, with the first append (`segment_reserve`): most logs that are opened wait long for it.
cdef void segment_activate_later(Segment* segment, int64_t index_bytes) noexcept nogil
cdef void segment_add_reference(Segment* segment) noexcept nogil
cdef void segment_drop_reference(Segment* segment) noexcept nogil
cdef void slice_release(FileSlice* slice) noexcept nogil

# The batch with `header` is at `position`: timestamps, and index entries when they are due.
# segment_reserve has been asked for as many. 0: an index cannot be trusted, and the caller takes
# the log offline.
cdef int segment_note_batch(
    Segment* segment, int64_t position, const Header* header, int64_t index_interval_bytes
) noexcept nogil
cdef int segment_reserve(Segment* segment, int32_t batches) noexcept nogil
cdef int segment_index_full(Segment* segment) noexcept nogil

# No more appends: the last time index entry, both indexes cut to size. 0 or an errno; EFAULT: an
# index cannot be trusted, and the caller takes the log offline.
cdef int segment_end_times(Segment* segment) noexcept nogil
cdef int segment_seal(Segment* segment) noexcept nogil
cdef enum:
    INDEX_UNSOUND = 4             # of `segment_end`: the caller takes the log offline

# The same in three steps, of which the second alone touches no file: room for the last entry, 1 if
# there is to be one; the end, in memory, which index files are too long; those.
cdef int segment_reserve_end(Segment* segment, int* status) noexcept nogil
cdef int segment_end(Segment* segment, int has_room) noexcept nogil
cdef void segment_shorten(Segment* segment, int which) noexcept nogil
# Empties both indexes for writing anew. 0 or an errno.
cdef int segment_reset_indexes(Segment* segment, int64_t index_bytes) noexcept nogil
# Data and indexes to the disk. 0 or an errno. Needs a reference, not the lock.
cdef int segment_sync(Segment* segment) noexcept nogil
# The data alone.
cdef int segment_sync_records(Segment* segment) noexcept nogil
cdef int segment_was_synced(Segment* segment) noexcept nogil

# Drops the index entries beyond a position, where the log ends at `end_offset` then; nothing is
# appended any more. 0 or an errno.
cdef int segment_cut_indexes(
    Segment* segment, int64_t position, int64_t end_offset) noexcept nogil

# Where to begin a scan for an offset, as the index has it, which has no checksum: the scan's first
# step is `scan_from_index`, with the same offset. From a file, if the index is not mapped: who only
# looks asks `log_scan_start` then.
cdef int64_t segment_scan_start(Segment* segment, int64_t offset) noexcept nogil
# Without waiting for the disk: False where that would be, or cannot be said.
cdef int segment_scan_start_now(
    Segment* segment, int64_t offset, int64_t* start) noexcept nogil
# Of a position that an index has: itself, or 0 where it does not fit.
cdef inline int64_t scan_start_at(Segment* segment, int64_t position) noexcept nogil:
    return position if 0 <= position < kb_load_i64(&segment.size_bytes) else 0

cdef void scan_begin(Scan* scan, int fd, int64_t position, int64_t limit) noexcept nogil
# From the beginning of a slice: what is copied of it is not read again.
cdef void scan_begin_in_copy(Scan* scan, const FileSlice* slice, int64_t limit) noexcept nogil
# 1: `header` is that of the batch at `position`; 0: the limit; -1: there is no whole batch, or it
# cannot be read (`status`).
cdef int scan_next(Scan* scan) noexcept nogil
cdef void scan_advance(Scan* scan) noexcept nogil
# The first step from where an index points: back to the file's beginning, if there is no batch, or
# it begins beyond `offset`. Answers as scan_next; -1 where that cannot be read, and then no step
# may follow: it would go on from a place that was not looked at.
cdef int scan_from_index(Scan* scan, int64_t offset) noexcept nogil
# Goes to the first batch whose last offset is at or above `offset`; answers as scan_next.
cdef int scan_to_offset(Scan* scan, int64_t offset) noexcept nogil
