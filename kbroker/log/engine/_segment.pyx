# cython: language_level=3
"""A segment of a log: `<base offset, 20 digits>.log` and its two indexes.

A segment is counted by references: one is the partition's, one belongs to every slice lent to a
send. The last one closes the file, so what was promised can be sent whatever retention, truncation
or deletion do meanwhile. Bytes below `size_bytes` never change, except by truncation.

Everything but the reference count, `segment_sync` and `segment_was_synced` wants the partition's
lock. Scans read with pread and need none. No GIL. A scan trusts nothing that it reads: a header
that does not fit in the file or does not agree with itself ends it.
"""

from libc.errno cimport EFAULT, EINTR, EIO, ENOENT, ENOMEM, errno
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strlen

from kbroker.core._atomics cimport kb_store_i64, kb_store_int
from kbroker.core._live_objects cimport LIVE_SEGMENTS, live_add
from kbroker.core._require cimport drop_reference, take_reference
from kbroker.log.engine._aborted_index cimport aborted_close, aborted_cut, aborted_open
from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._index cimport (
    AT_POSITION, AT_RELATIVE_OFFSET, BY_KEY, OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, IndexEntry,
    index_close, index_cut, index_end, index_look_up, index_look_up_now, index_open_readable,
    index_open_writable, index_reserve, index_shorten, index_trim, offset_index_append,
    time_index_append)
from kbroker.log.engine._records cimport HEADER_BYTES, header_plausible, header_read

cdef extern from "<fcntl.h>" nogil:
    enum:
        O_RDWR
        O_CREAT
        O_TRUNC
        O_CLOEXEC
    unsigned int SYNC_FILE_RANGE_WAIT_BEFORE

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


# --- Life -----------------------------------------------------------------------------------------

cdef char* path_of(
    const char* directory, int64_t base_offset, const char* suffix, const char* tail
) noexcept nogil:
    cdef size_t size = strlen(directory) + strlen(tail) + 40
    cdef char* path = <char*>malloc(size)
    if path != NULL:
        snprintf(path, size, "%s/%020lld.%s%s", directory, <long long>base_offset, suffix, tail)
    return path


cdef int segment_renamed(Segment* segment, const char* directory, const char* tail) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef char* log_path = path_of(directory, segment.base_offset, b"log", tail)
    cdef char* offsets_path = path_of(directory, segment.base_offset, b"index", tail)
    cdef char* times_path = path_of(directory, segment.base_offset, b"timeindex", tail)
    cdef char* aborted_path = path_of(directory, segment.base_offset, b"txnindex", tail)
    if log_path == NULL or offsets_path == NULL or times_path == NULL or aborted_path == NULL:
        free(log_path)
        free(aborted_path)
        free(offsets_path)
        free(times_path)
        return ENOMEM
    free(part.former_paths[0])
    free(part.former_paths[1])
    part.former_paths[0] = part.offsets_path
    part.former_paths[1] = part.times_path
    free(part.log_path)
    part.log_path = log_path
    part.offsets_path = offsets_path
    part.times_path = times_path
    free(part.aborted_path)
    part.aborted_path = aborted_path
    return 0


cdef Segment* segment_new(
    const char* directory, int64_t base_offset, const char* tail
) noexcept nogil:
    cdef Segment* segment = <Segment*>calloc(1, sizeof(Segment))
    cdef SegmentPart* part = <SegmentPart*>calloc(1, sizeof(SegmentPart))
    if segment == NULL or part == NULL:
        free(segment)
        free(part)
        return NULL
    live_add(LIVE_SEGMENTS, 1)
    segment.refs = 1
    segment.fd = -1
    segment.base_offset = base_offset
    segment.index = part
    part.offsets.entry_bytes = OFFSET_ENTRY_BYTES
    part.times.entry_bytes = TIME_ENTRY_BYTES
    part.max_timestamp_ms = -1
    part.max_timestamp_offset = base_offset
    part.believed_offset = -1
    part.first_timestamp_ms = -1
    part.largest_leader_epoch = INT32_MAX
    part.has_producers = 1
    part.aborted.fd = -1
    if segment_renamed(segment, directory, tail) != 0:
        segment_drop_reference(segment)
        return NULL
    return segment


cdef Segment* segment_create(
    const char* directory, int64_t base_offset, int64_t index_bytes, int64_t now_ms, int* status
) noexcept nogil:
    return segment_create_named(directory, base_offset, b"", index_bytes, now_ms, status)


cdef Segment* segment_create_named(
    const char* directory, int64_t base_offset, const char* tail, int64_t index_bytes,
    int64_t now_ms, int* status
) noexcept nogil:
    cdef Segment* segment = segment_new(directory, base_offset, tail)
    status[0] = ENOMEM
    if segment == NULL:
        return NULL
    cdef SegmentPart* part = part_of(segment)
    part.created_ms = now_ms
    segment.fd = files.open(part.log_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    status[0] = errno if segment.fd < 0 else segment_reset_indexes(segment, index_bytes)
    if status[0] != 0:
        segment_unlink(segment)   # an empty file would end the log here at the next start
        segment_drop_reference(segment)
        return NULL
    return segment


cdef void segment_unlink(Segment* segment) noexcept nogil:
    # What cannot be removed stays, and the next start sees that it is empty.
    cdef SegmentPart* part = part_of(segment)
    if segment.fd >= 0:
        files.unlink(part.log_path)
        files.unlink(part.offsets_path)
        files.unlink(part.times_path)
        if part.aborted.fd >= 0:
            files.unlink(part.aborted_path)


cdef Segment* segment_open(
    const char* directory, int64_t base_offset, int64_t now_ms, int* status
) noexcept nogil:
    cdef Segment* segment = segment_new(directory, base_offset, b"")
    status[0] = ENOMEM
    if segment == NULL:
        return NULL
    cdef SegmentPart* part = part_of(segment)
    part.created_ms = now_ms
    part.largest_batch_bytes = INT64_MAX
    part.may_hold_empty = 1
    segment.fd = files.open(part.log_path, O_RDWR | O_CLOEXEC, 0)
    status[0] = errno if segment.fd < 0 else 0
    if status[0] == 0:
        segment.size_bytes = part.unseen_end = files.size(segment.fd)
        status[0] = errno if segment.size_bytes < 0 else 0
    if status[0] == 0:
        status[0] = index_open_readable(&part.offsets, part.offsets_path, OFFSET_ENTRY_BYTES)
    if status[0] == 0:
        status[0] = index_open_readable(&part.times, part.times_path, TIME_ENTRY_BYTES)
    if status[0] == 0:
        status[0] = aborted_open(&part.aborted, part.aborted_path)
    if status[0] != 0:
        segment_drop_reference(segment)
        return NULL
    return segment


cdef int segment_activate(Segment* segment, int64_t index_bytes) noexcept nogil:
    # One that is mapped already, after a try that failed half way, stays so: others may read it
    # through that map meanwhile.
    cdef SegmentPart* part = part_of(segment)
    cdef int status = 0
    if part.offsets.map == NULL:
        status = index_open_writable(&part.offsets, part.offsets_path, index_bytes)
    if status == 0:
        status = index_open_writable(&part.times, part.times_path, index_bytes)
    if status == 0:
        part.index_bytes = 0
    return status


cdef void segment_activate_later(Segment* segment, int64_t index_bytes) noexcept nogil:
    part_of(segment).index_bytes = index_bytes


cdef void segment_add_reference(Segment* segment) noexcept nogil:
    take_reference(&segment.refs, "segment: one with a reference gets another")


cdef void segment_drop_reference(Segment* segment) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    if drop_reference(&segment.refs, "segment: references are dropped once") > 0:
        return
    if segment.fd >= 0:
        close(segment.fd)
    index_close(&part.offsets)
    index_close(&part.times)
    aborted_close(&part.aborted)
    free(part.log_path)
    free(part.aborted_path)
    free(part.offsets_path)
    free(part.times_path)
    free(part.former_paths[0])
    free(part.former_paths[1])
    free(part)
    live_add(LIVE_SEGMENTS, -1)
    free(segment)


cdef void slice_release(FileSlice* slice) noexcept nogil:
    if slice.segment != NULL:
        segment_drop_reference(slice.segment)
    slice.segment = NULL
    slice.fd = -1
    slice.length = 0
    slice.is_copied = 0


cdef int segment_reserve_end(Segment* segment, int* status) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    status[0] = 0
    if part.index_bytes or part.times.entries_max == 0 or part.max_timestamp_ms < 0:
        return 0
    status[0] = index_reserve(&part.times, part.times_path, 1)
    return status[0] == 0


cdef int note_end(Segment* segment) noexcept nogil:
    # The last entry is the largest timestamp; what is said already is not said again.
    cdef SegmentPart* part = part_of(segment)
    return time_index_append(
        &part.times, part.times_path, part.max_timestamp_ms,
        <int32_t>(part.max_timestamp_offset - segment.base_offset))


cdef int segment_end_times(Segment* segment) noexcept nogil:
    cdef int status
    if segment_reserve_end(segment, &status) and not note_end(segment):
        return EFAULT
    return status


cdef int segment_end(Segment* segment, int has_room) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef int found = 0
    if has_room and not note_end(segment):
        found = INDEX_UNSOUND
    return found | index_end(&part.offsets) | index_end(&part.times) << 1


cdef void segment_shorten(Segment* segment, int which) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    if which & 1:
        index_shorten(&part.offsets, part.offsets_path)
    if which & 2:
        index_shorten(&part.times, part.times_path)


cdef int segment_seal(Segment* segment) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef int status = segment_end_times(segment), trim_status
    trim_status = index_trim(&part.offsets, part.offsets_path)
    status = status or trim_status
    trim_status = index_trim(&part.times, part.times_path)
    return status or trim_status


cdef int segment_reset_indexes(Segment* segment, int64_t index_bytes) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    part.bytes_since_entry = 0
    part.largest_batch_bytes = 0
    part.may_hold_empty = 0
    part.max_timestamp_ms = -1
    part.max_timestamp_offset = segment.base_offset
    part.believed_offset = -1
    part.first_timestamp_ms = -1
    part.offsets.entries = 0
    part.times.entries = 0
    cdef int status = index_open_writable(&part.offsets, part.offsets_path, index_bytes)
    if status == 0:
        status = index_open_writable(&part.times, part.times_path, index_bytes)
    return status


cdef int sync_file(int fd) noexcept nogil:
    while files.fdatasync(fd) < 0:
        if errno != EINTR:
            return errno
    return 0


cdef int sync_path(const char* path) noexcept nogil:
    # By its own descriptor: the maps belong to the holder of the lock. A segment that has left the
    # log meanwhile has lost its names, and its indexes are not looked for any more.
    cdef int fd = files.open(path, O_RDWR | O_CLOEXEC, 0)
    cdef int status
    if fd < 0:
        return 0 if errno == ENOENT else errno
    status = sync_file(fd)
    close(fd)
    return status


cdef int segment_sync_records(Segment* segment) noexcept nogil:
    return sync_file(segment.fd)


cdef int segment_sync(Segment* segment) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef int status = sync_file(segment.fd)
    if status == 0:
        status = sync_path(part.offsets_path)
    if status == 0:
        status = sync_path(part.times_path)
    if status == 0 and part.aborted.fd >= 0:
        status = sync_file(part.aborted.fd)
    return status


cdef int segment_was_synced(Segment* segment) noexcept nogil:
    """After the whole volume was: whether a write of this file has failed since it was opened.

    Waits for nothing that is not on its way, and asks the device for nothing.
    """
    while files.sync_file_range(segment.fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) < 0:
        if errno != EINTR:
            return errno
    return 0


cdef int segment_cut_indexes(
    Segment* segment, int64_t position, int64_t end_offset
) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef int status = index_cut(&part.offsets, part.offsets_path, AT_POSITION, position)
    status = status or aborted_cut(&part.aborted, part.aborted_path, end_offset)
    return status or index_cut(
        &part.times, part.times_path, AT_RELATIVE_OFFSET, end_offset - segment.base_offset)


# --- Appending ------------------------------------------------------------------------------------

cdef int segment_index_full(Segment* segment) noexcept nogil:
    # The time index keeps one entry free for the sealing.
    cdef SegmentPart* part = part_of(segment)
    if part.index_bytes:          # there is room in what it will be
        return 0
    return (part.offsets.entries >= part.offsets.entries_max
            or part.times.entries + 1 >= part.times.entries_max)


cdef int segment_reserve(Segment* segment, int32_t batches) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef int status = 0
    if part.index_bytes:
        status = segment_activate(segment, part.index_bytes)
        if status != 0:
            return status
    status = index_reserve(&part.offsets, part.offsets_path, batches)
    return status or index_reserve(&part.times, part.times_path, batches)


cdef int segment_note_batch(
    Segment* segment, int64_t position, const Header* header, int64_t index_interval_bytes
) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef int64_t last_offset = header.base_offset + header.last_offset_delta
    cdef int64_t relative = last_offset - segment.base_offset
    cdef int is_sound = 1
    part.largest_leader_epoch = INT32_MAX
    part.has_producers = 1
    if header.record_count > 0:   # one of which compaction left nothing has no time either
        if part.first_timestamp_ms < 0:
            part.first_timestamp_ms = header.max_timestamp_ms
        if header.max_timestamp_ms > part.max_timestamp_ms:
            part.max_timestamp_ms = header.max_timestamp_ms
            part.max_timestamp_offset = last_offset
    elif not part.may_hold_empty:
        kb_store_int(&part.may_hold_empty, 1)
    if part.bytes_since_entry > index_interval_bytes and relative <= INT32_MAX:
        is_sound = offset_index_append(
            &part.offsets, part.offsets_path, <int32_t>relative, <int32_t>position)
        # The last place is for the sealing: a segment's largest timestamp is never lost.
        if part.times.entries + 1 < part.times.entries_max:
            is_sound &= time_index_append(
                &part.times, part.times_path, part.max_timestamp_ms,
                <int32_t>(part.max_timestamp_offset - segment.base_offset))
        part.bytes_since_entry = 0
    part.bytes_since_entry += header.size_bytes
    if header.size_bytes > part.largest_batch_bytes:
        kb_store_i64(&part.largest_batch_bytes, header.size_bytes)
    return is_sound


# --- Scanning -------------------------------------------------------------------------------------

cdef int64_t segment_scan_start(Segment* segment, int64_t offset) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    return scan_start_at(segment, index_look_up(
        &part.offsets, part.offsets_path, BY_KEY, offset - segment.base_offset).value)


cdef int segment_scan_start_now(
    Segment* segment, int64_t offset, int64_t* start
) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef IndexEntry entry
    cdef int is_known = index_look_up_now(
        &part.offsets, part.offsets_path, BY_KEY, offset - segment.base_offset, &entry)
    start[0] = scan_start_at(segment, entry.value)
    return is_known


cdef void scan_begin(Scan* scan, int fd, int64_t position, int64_t limit) noexcept nogil:
    scan.fd = fd
    scan.must_not_wait = 0
    scan.position = position
    scan.limit = limit
    scan.chunk_position = 0
    scan.chunk_bytes = 0
    scan.chunk_bytes_max = SCAN_CHUNK_BYTES
    scan.copy_bytes = 0
    scan.status = 0
    scan.torn = 0


cdef void scan_begin_in_copy(Scan* scan, const FileSlice* slice, int64_t limit) noexcept nogil:
    scan_begin(scan, slice.fd, slice.position, limit)
    if slice.is_copied:
        scan.copy = slice.room
        scan.copy_position = slice.position
        scan.copy_bytes = slice.length


cdef int chunk_from_copy(Scan* scan, int64_t wanted) noexcept nogil:
    cdef int64_t inside = scan.position - scan.copy_position
    if scan.copy_bytes == 0 or not 0 <= inside <= scan.copy_bytes - HEADER_BYTES:
        return 0
    scan.chunk_bytes = min(wanted, scan.copy_bytes - inside)
    memcpy(scan.chunk, scan.copy + inside, <size_t>scan.chunk_bytes)
    return 1


cdef int read_chunk(Scan* scan) noexcept nogil:
    cdef int64_t wanted = scan.limit - scan.position
    cdef int64_t (*pread)(int, void*, size_t, int64_t) noexcept nogil
    cdef int64_t got
    if wanted > scan.chunk_bytes_max:
        wanted = scan.chunk_bytes_max
    scan.chunk_position = scan.position
    scan.chunk_bytes = 0
    if chunk_from_copy(scan, wanted):
        return 0
    while scan.chunk_bytes < wanted:
        pread = files.pread_now if scan.must_not_wait else files.pread
        got = pread(
            scan.fd, scan.chunk + scan.chunk_bytes, <size_t>(wanted - scan.chunk_bytes),
            scan.position + scan.chunk_bytes)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            scan.status = errno if got < 0 else EIO      # EIO: the file has been cut meanwhile
            scan.chunk_bytes = 0
            return -1
        scan.chunk_bytes += got
    return 0


cdef int scan_next(Scan* scan) noexcept nogil:
    cdef int64_t inside
    if scan.position >= scan.limit:
        return 0
    scan.status = 0
    scan.torn = scan.limit - scan.position < HEADER_BYTES
    if scan.torn:
        return -1
    inside = scan.position - scan.chunk_position
    if inside < 0 or inside + HEADER_BYTES > scan.chunk_bytes:
        if read_chunk(scan) < 0:
            return -1
        inside = 0
    header_read(scan.chunk + inside, &scan.header)
    if not header_plausible(&scan.header):
        return -1
    scan.torn = scan.header.size_bytes > scan.limit - scan.position
    return -1 if scan.torn else 1


cdef void scan_advance(Scan* scan) noexcept nogil:
    scan.position += scan.header.size_bytes


cdef int scan_from_index(Scan* scan, int64_t offset) noexcept nogil:
    cdef int status
    if scan.position > 0:
        status = scan_next(scan)
        if status < 0 and scan.status != 0:
            return -1             # whether the index says the truth is not known
        if status < 0 or status == 1 and scan.header.base_offset > offset:
            scan.position = 0
    return scan_next(scan)


cdef int scan_to_offset(Scan* scan, int64_t offset) noexcept nogil:
    cdef int status = scan_next(scan)
    while status == 1 and scan.header.base_offset + scan.header.last_offset_delta < offset:
        scan_advance(scan)
        status = scan_next(scan)
    return status
