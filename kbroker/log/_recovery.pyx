# cython: language_level=3
"""What opening a log reads: all of a segment after a crash, only its end after a clean stop.

A crash may leave a torn batch at the end of the active segment (the tail that the page cache lost,
or a write that did not finish), index files with zeros behind their entries, and index entries
that point behind the end. Recovery reads each segment beyond the recovery point from its start:
the first batch that is cut off, implausible, out of order or wrong in its CRC ends the log, and
the indexes are written anew from what was good.

Called by the loader before the partition is online: nobody else has the segment. No GIL; a
megabyte of buffer, whatever a batch's length claims.
"""

from libc.errno cimport EINTR, EIO, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from kbroker._atomics cimport kb_store_i64
from kbroker.log._file_operations cimport files
from kbroker.log._index cimport (
    offset_index_sane, time_entry, time_index_lookup, time_index_sane)
from kbroker.log._producer_state cimport producers_commit, producers_note
from kbroker.log._records cimport (
    AT_ATTRIBUTES, CONTROL_BIT, Header, crc32c)
from kbroker.log._segment cimport (
    Scan, SegmentPart, part_of, scan_advance, scan_begin, scan_next, scan_to_offset,
    segment_note_batch, segment_reserve, segment_reset_indexes, segment_scan_start)

cdef enum:
    BUFFER_BYTES = 1024 * 1024
    ENTRIES_CHECKED = 2           # of each index at an open after a clean stop


cdef struct Reader:
    # The file through one large buffer, for the CRC of batches of any size.
    int fd
    uint8_t* buffer
    int64_t position              # of the buffer's first byte
    int64_t filled


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
        return -1
    reader.filled = got
    return got


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
    if not crc_is_right(reader, scan.position, &scan.header):
        return "a batch's CRC is wrong"
    return NULL


cdef void recover_segment(
    Segment* segment, int64_t index_bytes, int64_t index_interval_bytes, Recovered* out
) noexcept nogil:
    cdef Reader reader
    cdef Scan scan
    cdef int found
    reader.fd = segment.fd
    reader.position = 0
    reader.filled = 0
    out.valid_bytes = 0
    out.next_offset = segment.base_offset
    out.last_leader_epoch = -1
    out.batches = 0
    out.reason = NULL
    out.status = segment_reset_indexes(segment, index_bytes)
    if out.status != 0:
        return
    reader.buffer = <uint8_t*>malloc(BUFFER_BYTES)
    if reader.buffer == NULL:
        out.status = ENOMEM
        return
    scan_begin(&scan, segment.fd, 0, segment.size_bytes)
    while True:
        found = scan_next(&scan)
        if found == 0:
            break
        out.reason = "a batch is cut off or has no sound header"
        if found == 1:
            out.reason = trouble_with(segment, &reader, &scan, out.next_offset)
        if out.reason != NULL:
            break
        out.status = segment_reserve(segment, 1)
        if out.status != 0:
            break
        segment_note_batch(segment, scan.position, &scan.header, index_interval_bytes)
        out.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
        out.last_leader_epoch = scan.header.leader_epoch
        out.batches += 1
        scan_advance(&scan)
    out.valid_bytes = scan.position
    free(reader.buffer)


cdef void inspect_segment(Segment* segment, Recovered* out) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef Scan scan
    cdef int32_t relative = 0
    cdef int found
    out.status = 0
    out.batches = 0
    out.reason = NULL
    out.next_offset = segment.base_offset
    out.last_leader_epoch = -1
    scan_begin(&scan, segment.fd, 0, segment.size_bytes)
    if scan_next(&scan) == 1:
        part.first_timestamp_ms = scan.header.max_timestamp_ms
    if part.times.entries:        # the last entry of a sealed segment is its largest timestamp
        time_index_lookup(&part.times, part.times_path, -1)           # maps it
        if part.times.map != NULL:
            time_entry(
                &part.times, part.times.entries - 1, &part.max_timestamp_ms, &relative)
            part.max_timestamp_offset = segment.base_offset + relative
    scan_begin(
        &scan, segment.fd, segment_scan_start(segment, segment.base_offset + 0x7FFFFFFF),
        segment.size_bytes)
    part.bytes_since_entry = segment.size_bytes - scan.position
    while True:
        found = scan_next(&scan)
        if found != 1:
            break
        if scan.header.max_timestamp_ms > part.max_timestamp_ms:
            part.max_timestamp_ms = scan.header.max_timestamp_ms
            part.max_timestamp_offset = scan.header.base_offset + scan.header.last_offset_delta
        out.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
        out.last_leader_epoch = scan.header.leader_epoch
        out.batches += 1
        scan_advance(&scan)
    out.valid_bytes = scan.position
    if found < 0:
        out.reason = "a batch is cut off or has no sound header"
    elif not (
            offset_index_sane(&part.offsets, part.offsets_path, segment.size_bytes, ENTRIES_CHECKED)
            and time_index_sane(
                &part.times, part.times_path, out.next_offset - segment.base_offset,
                ENTRIES_CHECKED)):
        out.reason = "an index does not fit its segment"


cdef int find_newer_epoch(Segment* segment, int32_t* epoch, int64_t* offset) noexcept nogil:
    cdef Scan scan
    scan_begin(&scan, segment.fd, segment_scan_start(segment, offset[0]), segment.size_bytes)
    cdef int found = scan_to_offset(&scan, offset[0])
    while found == 1 and scan.header.leader_epoch <= epoch[0]:
        scan_advance(&scan)
        found = scan_next(&scan)
    if found == 1:
        epoch[0] = scan.header.leader_epoch
        offset[0] = scan.header.base_offset
    return found


cdef int truncate_segment(Segment* segment, int64_t size_bytes) noexcept nogil:
    while files.ftruncate(segment.fd, size_bytes) < 0:
        if errno != EINTR:
            return errno
    kb_store_i64(&segment.size_bytes, size_bytes)
    return 0


cdef int replay_producers(
    ProducerTable* table, Segment* segment, int64_t from_offset
) noexcept nogil:
    cdef Scan scan
    cdef int found, status = 0
    scan_begin(
        &scan, segment.fd, segment_scan_start(segment, from_offset), segment.size_bytes)
    found = scan_to_offset(&scan, from_offset)
    while found == 1 and status == 0:
        # Markers of transactions carry a producer id and no sequence.
        if scan.header.producer_id >= 0 and not scan.header.attributes & CONTROL_BIT \
                and scan.header.base_sequence >= 0:
            status = producers_note(
                table, scan.header.producer_id, scan.header.producer_epoch,
                scan.header.base_sequence, scan.header.last_offset_delta, scan.header.base_offset,
                scan.header.max_timestamp_ms)
            producers_commit(table)
        scan_advance(&scan)
        found = scan_next(&scan)
    if status == 0 and found < 0:
        status = EIO
    return status
