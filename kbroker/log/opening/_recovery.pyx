# cython: language_level=3
"""The reads of an opening: a whole segment after a crash, only its end after a clean stop.

A crash may leave a torn batch at the end of the active segment (the tail that the page cache lost,
or a write that did not finish), index files with zeros after their entries, and index entries that
point beyond the end. Recovery reads each segment beyond the recovery point from its start: the
first batch that is cut off, implausible, out of order or wrong in its CRC ends the log, and the
indexes are written again from the sound batches.

Called by the loader before the partition is online: no other thread has the segment. No GIL; a
megabyte of buffer, whatever a batch's length claims.
"""

from libc.errno cimport EFAULT, EINTR, EIO, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kbroker.core._atomics cimport kb_store_i64
from kbroker.log.engine._aborted_index cimport (
    aborted_check, aborted_publish, aborted_reset, aborted_spoil, aborted_sync, aborted_write)
from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._index cimport offset_index_check, time_index_check
from kbroker.log.engine._markers cimport MARKER_RECORD_BYTES_MAX, may_be_marker
from kbroker.log.engine._producer_state cimport (
    producers_commit, producers_note_stored, producers_replicated)
from kbroker.log.engine._records cimport (
    AT_ATTRIBUTES, HEADER_BYTES, Header, crc32c, has_producer)
from kbroker.log.engine._segment cimport (
    Scan, SegmentPart, part_of, scan_advance, scan_begin, scan_from_index, scan_next,
    scan_to_offset,
    segment_note_batch, segment_reserve, segment_reset_indexes, segment_scan_start, segment_seal)

cdef enum:
    BUFFER_BYTES = 1024 * 1024
    ENTRIES_CHECKED = 2           # of each index at an open after a clean stop


cdef struct Reader:
    # The file through one large buffer, for the CRC of batches of any size.
    int fd
    uint8_t* buffer
    int64_t position              # of the buffer's first byte
    int64_t filled
    int status                    # the errno of a read that failed


cdef int64_t fill(Reader* reader, int64_t position) noexcept nogil:
    # How many bytes from `position` on the buffer holds, at least one; -1: none can be read.
    cdef int64_t got
    if reader.position <= position < reader.position + reader.filled:
        return reader.position + reader.filled - position
    reader.position = position
    reader.filled = 0
    while True:
        got = files.pread(reader.fd, reader.buffer, BUFFER_BYTES, position)
        if got >= 0 or errno != EINTR:
            break
    if got <= 0:
        reader.status = errno if got < 0 else EIO        # EIO: the file has been cut meanwhile
        return -1
    reader.filled = got
    return got


cdef void lend_header(Reader* reader, Scan* scan) noexcept nogil:
    # What the buffer has of the next batch is not read from the file once more.
    cdef int64_t at = scan.position - reader.position
    if 0 <= at <= reader.filled - HEADER_BYTES:
        memcpy(scan.chunk, reader.buffer + at, HEADER_BYTES)
        scan.chunk_position = scan.position
        scan.chunk_bytes = HEADER_BYTES


cdef int crc_is_right(Reader* reader, int64_t position, const Header* header) noexcept nogil:
    cdef int64_t at = position + AT_ATTRIBUTES
    cdef int64_t end = position + header.size_bytes
    cdef int64_t part
    cdef uint32_t crc = 0
    while at < end:
        part = fill(reader, at)
        if part < 0:
            return 0
        if part > end - at:
            part = end - at
        crc = crc32c(crc, reader.buffer + (at - reader.position), part)
        at += part
    return crc == header.crc


cdef const char* trouble_with(
    Segment* segment, Reader* reader, const Scan* scan, int64_t next_offset
) noexcept nogil:
    if scan.header.base_offset < next_offset:
        return "an offset goes back"
    if scan.header.base_offset + scan.header.last_offset_delta - segment.base_offset > 0x7FFFFFFF:
        return "an offset is too far from the segment's base"
    if scan.position > 0x7FFFFFFF:
        return "the segment is too large for an index"
    if not crc_is_right(reader, scan.position, &scan.header):
        return "a batch's CRC is wrong"
    return NULL


cdef const char* how_it_ends(const Scan* scan) noexcept nogil:
    return "a batch is cut off" if scan.torn else "there is no batch"


cdef void recover_segment(
    Segment* segment, int64_t index_bytes, int64_t index_interval_bytes, int drops_aborted,
    Recovered* out
) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef int32_t largest_leader_epoch = -1
    cdef int has_producers = 0, has_markers = 0
    cdef Reader reader
    cdef Scan scan
    cdef int found
    reader.fd = segment.fd
    reader.position = 0
    reader.filled = 0
    reader.status = 0
    begin(segment, out)
    out.rebuilt = 1
    out.status = segment_reset_indexes(segment, index_bytes)
    if out.status == 0 and drops_aborted:
        out.status = aborted_spoil(&part.aborted)
        part.rebuilds_aborted = 1
    if out.status != 0:
        return
    reader.buffer = <uint8_t*>malloc(BUFFER_BYTES)
    if reader.buffer == NULL:
        out.status = ENOMEM
        return
    scan_begin(&scan, segment.fd, 0, segment.size_bytes)
    while True:
        lend_header(&reader, &scan)
        found = scan_next(&scan)
        if found == 0:
            break
        if found == 1:
            out.reason = trouble_with(segment, &reader, &scan, out.next_offset)
        else:
            out.reason = how_it_ends(&scan)
            out.torn = scan.torn
        # A disk that does not answer says nothing about what it holds.
        out.status = scan.status or reader.status
        if out.reason != NULL or out.status != 0:
            break
        out.status = segment_reserve(segment, 1)
        if out.status != 0:
            break
        if not segment_note_batch(segment, scan.position, &scan.header, index_interval_bytes):
            out.status = EFAULT
            break
        out.has_gaps |= (
            scan.header.base_offset != out.next_offset
            or scan.header.record_count != scan.header.last_offset_delta + 1)
        out.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
        out.last_leader_epoch = scan.header.leader_epoch
        out.batches += 1
        largest_leader_epoch = max(largest_leader_epoch, scan.header.leader_epoch)
        has_producers |= has_producer(&scan.header)
        has_markers |= may_be_marker(&scan.header)
        scan_advance(&scan)
    out.valid_bytes = scan.position
    free(reader.buffer)
    # A search for epochs or producers walks on after a batch whose CRC is wrong.
    if out.reason == NULL and out.status == 0:
        part.largest_leader_epoch = largest_leader_epoch
        part.has_producers = has_producers
        part.has_markers = has_markers
    else:
        part.has_markers = 1
    if drops_aborted and not part.has_markers and out.status == 0:    # they are not replayed
        out.status = aborted_reset(&part.aborted, part.aborted_path)


cdef void begin(Segment* segment, Recovered* out) noexcept nogil:
    out.status = 0
    out.valid_bytes = 0
    out.next_offset = segment.base_offset
    out.last_leader_epoch = -1
    out.batches = 0
    out.reason = NULL
    out.torn = 0
    out.rebuilt = 0
    out.has_gaps = 0


cdef int check_offsets(Segment* segment, int* fits) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    return offset_index_check(
        &part.offsets, part.offsets_path, segment.size_bytes, ENTRIES_CHECKED, fits)


cdef int check_times(Segment* segment, int* fits, int32_t* last_relative) noexcept nogil:
    # The last entry of a sealed segment is its largest timestamp, unless the file has lost some.
    cdef SegmentPart* part = part_of(segment)
    cdef int64_t timestamp_ms
    cdef int status = time_index_check(
        &part.times, part.times_path, ENTRIES_CHECKED, fits, &timestamp_ms, last_relative)
    if (status == 0 and fits[0] and part.times.entries
            and timestamp_ms > part.max_timestamp_ms):
        part.max_timestamp_ms = timestamp_ms
        part.max_timestamp_offset = segment.base_offset + last_relative[0]
        part.believed_offset = part.max_timestamp_offset
        part.believed_ms = timestamp_ms
    return status


cdef void inspect_segment(Segment* segment, Recovered* out, int* fits) noexcept nogil:
    # Trusts what the segment holds. `fits`: so do its indexes.
    cdef SegmentPart* part = part_of(segment)
    cdef Scan scan
    cdef int64_t largest_ms, largest_offset, last_marker
    cdef int32_t last_relative
    cdef int found, misled = 0
    begin(segment, out)
    scan_begin(&scan, segment.fd, 0, segment.size_bytes)
    found = scan_next(&scan)
    if found == 1:
        part.first_timestamp_ms = scan.header.max_timestamp_ms
    elif found < 0 and scan.status != 0:
        out.status = scan.status
        return
    out.status = aborted_check(&part.aborted, segment.base_offset, &last_marker)
    if out.status != 0 or part.aborted.unsound:
        return
    out.status = check_offsets(segment, fits)
    if out.status != 0 or not fits[0]:
        return
    out.status = check_times(segment, fits, &last_relative)
    if out.status != 0 or not fits[0]:
        return
    scan_begin(
        &scan, segment.fd, segment_scan_start(segment, segment.base_offset + 0x7FFFFFFF),
        segment.size_bytes)
    part.bytes_since_entry = segment.size_bytes - scan.position
    largest_ms = part.max_timestamp_ms
    largest_offset = part.max_timestamp_offset
    while True:
        found = scan_next(&scan)
        if found != 1:
            break
        if (part.times.entries
                and 0 <= largest_offset - scan.header.base_offset <= scan.header.last_offset_delta):
            part.believed_offset = -1
            if largest_ms != scan.header.max_timestamp_ms:
                misled = 1        # the index is damaged there, or the batch
        if scan.header.record_count > 0 and scan.header.max_timestamp_ms > part.max_timestamp_ms:
            part.max_timestamp_ms = scan.header.max_timestamp_ms
            part.max_timestamp_offset = scan.header.base_offset + scan.header.last_offset_delta
        out.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
        out.last_leader_epoch = scan.header.leader_epoch
        out.batches += 1
        scan_advance(&scan)
    out.valid_bytes = scan.position
    if found < 0:
        out.status = scan.status
        out.reason = how_it_ends(&scan)
        out.torn = scan.torn
    else:
        part.aborted.unsound = last_marker >= out.next_offset
        fits[0] = (last_relative < out.next_offset - segment.base_offset
                   and not part.aborted.unsound)
    if misled and out.status == 0 and fits[0]:
        out.status = look_for_largest(segment, out.valid_bytes)


cdef int look_for_largest(Segment* segment, int64_t size_bytes) noexcept nogil:
    # The largest timestamp as the headers have it, where the index does not say. 0 or an errno.
    cdef SegmentPart* part = part_of(segment)
    cdef Scan scan
    part.max_timestamp_ms = -1
    part.believed_offset = -1
    scan_begin(&scan, segment.fd, 0, size_bytes)
    while scan_next(&scan) == 1:
        if scan.header.record_count > 0 and scan.header.max_timestamp_ms > part.max_timestamp_ms:
            part.max_timestamp_ms = scan.header.max_timestamp_ms
            part.max_timestamp_offset = scan.header.base_offset + scan.header.last_offset_delta
        scan_advance(&scan)
    return scan.status


cdef int check_segment(
    Segment* segment, int recover, int64_t index_bytes, int64_t index_interval_bytes,
    Recovered* out
) noexcept nogil:
    cdef int fits = 0
    if not recover:
        inspect_segment(segment, out, &fits)
        if out.status != 0 or fits:
            return out.status
    # What a clean stop leaves of aborted transactions is whole, unless it is unsound.
    recover_segment(
        segment, index_bytes, index_interval_bytes, recover or part_of(segment).aborted.unsound,
        out)
    part_of(segment).unseen_end = 0    # what is left of it was read whole
    if out.status == 0:
        out.status = segment_seal(segment)
    return out.status


cdef int find_readable_end(
    Segment* segment, const Recovered* found, int64_t* end
) noexcept nogil:
    cdef Scan scan
    scan_begin(&scan, segment.fd, 0, segment.size_bytes)
    while scan_next(&scan) == 1:
        scan_advance(&scan)
    end[0] = max(scan.position, found.valid_bytes if found.batches else 0)
    return scan.status


cdef int find_newer_epoch(
    Segment* segment, int32_t* epoch, int64_t* offset, int* status
) noexcept nogil:
    cdef Scan scan
    status[0] = 0
    if part_of(segment).largest_leader_epoch <= epoch[0]:
        return 0
    scan_begin(&scan, segment.fd, segment_scan_start(segment, offset[0]), segment.size_bytes)
    cdef int found = scan_from_index(&scan, offset[0])
    if found == 1:
        found = scan_to_offset(&scan, offset[0])
    while found == 1 and scan.header.leader_epoch <= epoch[0]:
        scan_advance(&scan)
        found = scan_next(&scan)
    if found == 1:
        epoch[0] = scan.header.leader_epoch
        offset[0] = scan.header.base_offset
    status[0] = scan.status if found < 0 else 0
    if found < 0 and scan.status == 0:
        return 0
    return found


cdef int has_marker_between(
    Segment* segment, int64_t from_offset, int64_t end_offset, int* status
) noexcept nogil:
    cdef Scan scan
    cdef int found
    scan_begin(
        &scan, segment.fd, segment_scan_start(segment, from_offset), segment.size_bytes)
    found = scan_from_index(&scan, from_offset)
    if found == 1:
        found = scan_to_offset(&scan, from_offset)
    while found == 1 and scan.header.base_offset < end_offset:
        if may_be_marker(&scan.header):
            return 1
        scan_advance(&scan)
        found = scan_next(&scan)
    status[0] = scan.status if found < 0 else 0
    return 0


cdef int truncate_segment(Segment* segment, int64_t size_bytes) noexcept nogil:
    while files.ftruncate(segment.fd, size_bytes) < 0:
        if errno != EINTR:
            return errno
    kb_store_i64(&segment.size_bytes, size_bytes)
    part_of(segment).stray_bytes = 0
    return 0


cdef int read_marker(
    const Segment* segment, const Scan* scan, uint8_t* records, int64_t* length
) noexcept nogil:
    # The beginning of a control batch's records; 0 or an errno. All that is wanted of it: of a part
    # it would be said that there is no marker, and its transaction would have no end.
    cdef int64_t done = 0, got
    length[0] = min(scan.header.size_bytes - HEADER_BYTES, MARKER_RECORD_BYTES_MAX)
    while done < length[0]:
        got = files.pread(
            segment.fd, records + done, <size_t>(length[0] - done),
            scan.position + HEADER_BYTES + done)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            return errno if got < 0 else EIO      # EIO: the file has been cut meanwhile
        done += got
    return 0


cdef int rebuild_aborted(ProducerTable* table, Segment* segment) noexcept nogil:
    # What its markers have ended, in the order in which they do. 0 or an errno.
    cdef SegmentPart* part = part_of(segment)
    cdef int status = 0
    # The segment may be one that no flush looks at again, so what is written is on the disk.
    if part.rebuilds_aborted and table.aborted_count:
        status = aborted_write(
            &part.aborted, part.aborted_path, table.aborted, table.aborted_count)
        if status == 0:
            aborted_publish(&part.aborted, table.aborted_count)
            status = aborted_sync(&part.aborted)
    elif part.rebuilds_aborted:
        status = aborted_reset(&part.aborted, part.aborted_path)
    part.rebuilds_aborted = 0
    table.aborted_count = 0
    return status


cdef int replay_producers(
    ProducerTable* table, Segment* segment, int64_t from_offset, int64_t high_watermark
) noexcept nogil:
    cdef Scan scan
    cdef uint8_t records[MARKER_RECORD_BYTES_MAX]
    cdef int64_t length = 0
    cdef int found, status = 0
    if not part_of(segment).has_producers:
        return rebuild_aborted(table, segment)
    scan_begin(
        &scan, segment.fd, segment_scan_start(segment, from_offset), segment.size_bytes)
    found = scan_from_index(&scan, from_offset)
    if found == 1:
        found = scan_to_offset(&scan, from_offset)
    while found == 1 and status == 0:
        if has_producer(&scan.header):
            if may_be_marker(&scan.header):
                status = read_marker(segment, &scan, records, &length)
                if status != 0:
                    break
            status = producers_note_stored(
                table, &scan.header, records, length, segment.base_offset, scan.position)
            producers_commit(table)
            producers_replicated(table, high_watermark)
        scan_advance(&scan)
        found = scan_next(&scan)
    if status == 0 and found < 0:
        status = scan.status
    return status or rebuild_aborted(table, segment)
