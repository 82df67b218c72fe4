# cython: language_level=3
"""The append of a follower: what a fetch from the leader brought, byte for byte.

Offsets, leader epochs and timestamps are the leader's, who has validated them; here only what a
line or a disk can damage is looked at: sizes, the CRC, the order of offsets; and that markers can
be read, since a follower that passes one has a transaction open for ever. Between two batches
offsets may be missing, where the leader's log was compacted. Producers are noted, not judged.

The batches of one answer follow one another in memory, so that those which go to one segment are
one write. It ends, and the caller goes on with the rest, before the first batch of a leader epoch
that the log does not know: that is written down first (`leader_epochs.py`), since a replica that
cannot say where an epoch began cannot say how far it may be believed.

A write that fails is cut off again as in `_append`; earlier writes stay.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from kbroker.core._atomics cimport kb_add_i64, kb_store_i64, kb_store_int
from kbroker.core._error_codes cimport (
    CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, NO_ERROR, OFFSET_OUT_OF_RANGE)
from kbroker.log.engine._append cimport (
    aborted_after_write, aborted_before_write, roll_is_due, write_out)
from kbroker.log.engine._file_operations cimport iovec
from kbroker.log.engine._markers cimport marker_read, may_be_marker
from kbroker.log.engine._producer_state cimport (
    producers_commit, producers_note_stored, producers_roll_back)
from kbroker.log.engine._records cimport (
    HEADER_BYTES, Header, batch_crc, has_producer, header_plausible, header_read)
from kbroker.log.engine._segment cimport segment_note_batch, segment_reserve
from kbroker.log.engine._storage cimport (
    active_of, begin_writing_locked, end_writing_locked, log_is_sound_locked, log_requires,
    log_roll, recent_add, recent_clear)
from kbroker.log.engine._types cimport Marker, Segment


cdef struct Piece:
    # Batches that the next write takes: they follow one another.
    const uint8_t* data
    int64_t size_bytes
    int64_t end_offset            # after the last of them, or the log's
    int32_t batches


cdef inline int64_t end_of(const Header* header) noexcept nogil:
    return header.base_offset + header.last_offset_delta + 1


cdef void end_with(Followed* out, int error, const char* message) noexcept nogil:
    out.error = <short>error
    out.message = message


cdef void begin_answer(Followed* out) noexcept nogil:
    out.appended_bytes = 0
    out.error = NO_ERROR
    out.message = NULL
    out.new_epoch = -1
    out.new_epoch_offset = -1
    out.begin_again_at = -1


cdef const char* trouble_with(
    const uint8_t* batch, const Header* header, int64_t next_offset, int32_t epoch
) noexcept nogil:
    cdef Marker _marker
    if header.base_offset < next_offset:
        return "an offset goes back"
    if header.leader_epoch < epoch:
        return "a leader epoch goes back"
    if batch_crc(batch, header.size_bytes) != header.crc:
        return "a batch's CRC is wrong"
    if may_be_marker(header) and header.record_count > 0 and not marker_read(
            header, batch + HEADER_BYTES, header.size_bytes - HEADER_BYTES, &_marker):
        return "a transaction's marker cannot be read"
    return NULL


cdef int64_t followed_bytes(const uint8_t* data, int64_t length, Followed* out) noexcept nogil:
    cdef int64_t at = 0, next_offset = 0
    cdef int32_t epoch = -1
    cdef const char* trouble = NULL
    cdef Header header
    begin_answer(out)
    while length - at >= HEADER_BYTES:
        header_read(data + at, &header)
        if not header_plausible(&header):
            trouble = "there is no record batch"
        elif header.size_bytes > length - at:
            break
        else:
            trouble = trouble_with(data + at, &header, next_offset, epoch)
        if trouble != NULL:
            # What lies before it is sound; the next answer begins with it.
            if at == 0:
                end_with(out, CORRUPT_MESSAGE, trouble)
            return at
        next_offset = end_of(&header)
        epoch = header.leader_epoch
        at += header.size_bytes
    return at


# --- One write ------------------------------------------------------------------------------------

cdef int note_producers(Log* log, const Segment* segment, const Piece* piece) noexcept nogil:
    # 0 or an errno.
    cdef int64_t at = 0
    cdef int status = 0
    cdef Header header
    while at < piece.size_bytes and status == 0:
        header_read(piece.data + at, &header)
        if has_producer(&header):
            status = producers_note_stored(
                &log.producers, &header, piece.data + at + HEADER_BYTES,
                header.size_bytes - HEADER_BYTES, segment.base_offset, segment.size_bytes + at)
        at += header.size_bytes
    return status


cdef void publish(Log* log, Segment* segment, const Piece* piece) noexcept nogil:
    cdef int64_t at = 0, next_offset = log.log_end_offset
    cdef Header header
    while at < piece.size_bytes:
        header_read(piece.data + at, &header)
        if not segment_note_batch(
            segment, segment.size_bytes + at, &header, log.settings.index_interval_bytes
        ):
            kb_store_int(&log.online, 0)
        if header.base_offset > next_offset:
            recent_clear(log)     # the ring holds no gap: see recent_find()
        recent_add(log, header.base_offset, segment.size_bytes + at, header.size_bytes)
        next_offset = end_of(&header)
        at += header.size_bytes
    kb_store_i64(&segment.size_bytes, segment.size_bytes + piece.size_bytes)
    kb_store_i64(&log.log_end_offset, piece.end_offset)
    if piece.end_offset - log.recovery_point >= log.settings.flush_messages:
        kb_store_int(&log.flush_due, 1)
    kb_add_i64(&log.replicated_bytes, piece.size_bytes)
    log.writes += 1


cdef int write_piece(Log* log, Piece* piece, Followed* out) noexcept nogil:
    # 0, or -1 and the error in `out`.
    cdef Segment* segment = active_of(log)
    cdef iovec vector
    cdef int status
    if piece.size_bytes == 0:
        return 0
    if not log_requires(log, piece.end_offset > log.log_end_offset,
                        "follower: what is written goes on at the log's end", piece.end_offset,
                        log.log_end_offset):
        end_with(out, KAFKA_STORAGE_ERROR, "the log cannot be trusted")
        return -1
    vector.iov_base = <void*>piece.data
    vector.iov_len = <size_t>piece.size_bytes
    status = note_producers(log, segment, piece)
    if status == 0:
        begin_writing_locked(log, piece.size_bytes)
        status = segment_reserve(segment, piece.batches)
        if status == 0 and log.producers.aborted_count:
            status = aborted_before_write(log, segment)
        if status == 0:
            status = write_out(segment, &vector, 1, piece.size_bytes)
        end_writing_locked(log, piece.size_bytes)
    if log.producers.aborted_count:
        aborted_after_write(log, segment, status == 0)
    if status == 0:
        publish(log, segment, piece)
        producers_commit(&log.producers)
        out.appended_bytes += piece.size_bytes
    else:
        producers_roll_back(&log.producers)
        log.failed_writes += 1
        if status < 0:
            kb_store_int(&log.online, 0)
        end_with(out, KAFKA_STORAGE_ERROR, "the log cannot be written")
    piece.data += piece.size_bytes
    piece.size_bytes = 0
    piece.batches = 0
    return 0 if status == 0 else -1


# --- All of them ----------------------------------------------------------------------------------

cdef inline int32_t newest_epoch(const Log* log) noexcept nogil:
    return log.epochs[log.epoch_count - 1].epoch if log.epoch_count else -1


cdef int may_follow(
    Log* log, const Header* header, int64_t end_offset, Followed* out
) noexcept nogil:
    # Whether this batch comes next as things stand; `out` says why not.
    cdef int32_t epoch = newest_epoch(log)
    if header.base_offset < end_offset:
        end_with(out, OFFSET_OUT_OF_RANGE, "a batch begins before the log's end")
    elif header.leader_epoch < epoch:
        end_with(out, CORRUPT_MESSAGE, "a batch's leader epoch is older than the log's last")
    elif header.leader_epoch > epoch:
        out.new_epoch = header.leader_epoch
        out.new_epoch_offset = header.base_offset
    else:
        return 1
    return 0


cdef int make_place(
    Log* log, const Header* header, Piece* piece, int64_t now_ms, Followed* out
) noexcept nogil:
    # A segment that takes the batch after those of `piece`. 0, or -1 as `out` says.
    cdef Segment* segment = active_of(log)
    cdef int64_t last_offset = header.base_offset + header.last_offset_delta
    if segment.size_bytes + piece.size_bytes == 0:
        if last_offset - segment.base_offset <= INT32_MAX:
            return 0
        # An empty segment before others would end the log there at the next start.
        out.begin_again_at = header.base_offset
        return -1
    if not roll_is_due(
            log, segment, header.size_bytes, last_offset, header.max_timestamp_ms,
            piece.size_bytes, now_ms):
        return 0
    if write_piece(log, piece, out) != 0:
        return -1
    if log_roll(
            log, log.log_end_offset if last_offset - log.log_end_offset <= INT32_MAX
            else header.base_offset, now_ms) != 0:
        log.failed_writes += 1
        end_with(out, KAFKA_STORAGE_ERROR, "the log cannot begin a segment")
        return -1
    return 0


cdef void log_append_follower_locked(
    Log* log, const uint8_t* data, int64_t length, int64_t now_ms, Followed* out
) noexcept nogil:
    cdef Piece piece
    cdef Header header
    cdef int64_t at = 0
    begin_answer(out)
    if not log.online:
        end_with(out, KAFKA_STORAGE_ERROR, "the log is offline")
        return
    if not log_is_sound_locked(log):
        end_with(out, KAFKA_STORAGE_ERROR, "the log cannot be trusted")
        return
    piece.data = data
    piece.size_bytes = 0
    piece.batches = 0
    piece.end_offset = log.log_end_offset
    while at < length:
        header_read(data + at, &header)
        if not may_follow(log, &header, piece.end_offset, out):
            break
        if make_place(log, &header, &piece, now_ms, out) != 0:
            return
        piece.size_bytes += header.size_bytes
        piece.batches += 1
        piece.end_offset = end_of(&header)
        at += header.size_bytes
    write_piece(log, &piece, out)
