# cython: language_level=3
"""Group append: the validated batches of one run for one log in one write.

Under the log's lock, without the GIL, on a handler's thread. A group is cut into writes at a
roll and where the kernel's list of buffers ends; each write is one unit:
1. admit  size and producer state; a batch that fails is left out, alone
2. place  base offset and leader epoch into the frames (both outside the CRC), producers noted
          tentatively, so that a duplicate further on in the same group is seen
3. write  one pwritev at the segment's end; the lock is free meanwhile, for lookers only
4. publish  sizes, indexes, the ring of recent batches, log end; and, where enough is unflushed,
   that a flush is due (`_flush.pyx`)
A write that comes up short or fails is cut off the file again, its producers are forgotten, and
its batches and all after them get KAFKA_STORAGE_ERROR; the batches of earlier writes of the group
stay appended. If even the cutting fails the log goes offline: the content of its file is unknown.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t, uint64_t

from kbroker.core._atomics cimport kb_add_i64, kb_store_i64, kb_store_int
from kbroker.core._error_codes cimport (
    INVALID_TXN_STATE, KAFKA_STORAGE_ERROR, NO_ERROR, RECORD_LIST_TOO_LARGE)
from kbroker.log.engine._aborted_index cimport aborted_publish, aborted_take_back, aborted_write
from kbroker.log.engine._file_operations cimport files, iovec
from kbroker.log.engine._producer_state cimport (
    ProducerBatch, producers_check, producers_commit, producers_note, producers_note_marker,
    producers_roll_back)
from kbroker.log.engine._records cimport (
    AT_BASE_OFFSET, AT_LEADER_EPOCH, TRANSACTIONAL_BIT, Header)
from kbroker.log.engine._segment cimport (
    SegmentPart, part_of, segment_index_full, segment_note_batch, segment_reserve)
from kbroker.log.engine._storage cimport (
    active_of, begin_writing_locked, end_writing_locked, log_roll, recent_add)
from kbroker.log.engine._types cimport Batch, Bound, Segment
from kbroker.protocol._cursor cimport kb_put_u32, kb_put_u64

cdef enum:
    BATCHES_PER_WRITE = 128       # a run holds 64 requests


cdef struct Write:
    # The batches that the next pwritev takes.
    Batch* first                  # of the whole group
    Batch* batches[BATCHES_PER_WRITE]
    int32_t count
    int64_t size_bytes
    int64_t next_offset
    int32_t leader_epoch


cdef void refuse_batch(Batch* batch, int16_t error, const char* message) noexcept nogil:
    batch.error = error
    batch.error_message = message
    batch.log_start_offset = -1
    batch.append_time_ms = -1


cdef int admit(Log* log, Batch* batch, int64_t now_ms) noexcept nogil:
    # 1: to be written. 0: refused or a duplicate, and answered.
    cdef ProducerBatch* duplicate = NULL
    cdef int16_t error
    if batch.error != NO_ERROR:
        return 0
    if batch.length_bytes > log.settings.segment_bytes:
        refuse_batch(batch, RECORD_LIST_TOO_LARGE, "the batch is larger than segment.bytes")
        return 0
    batch.log_start_offset = log.log_start_offset
    if batch.producer_id < 0:
        return 1
    error = producers_check(&log.producers, batch, &duplicate)
    if error != NO_ERROR:
        refuse_batch(
            batch, error, "the producer has no such transaction here" if error == INVALID_TXN_STATE
            else "the producer's epoch or sequence is not the one that comes next")
        batch.log_start_offset = log.log_start_offset
        return 0
    if duplicate == NULL:
        return 1
    # Nothing is written, and the answer is that of the first time.
    batch.last_offset = duplicate.last_offset
    batch.base_offset = duplicate.last_offset - duplicate.offset_delta
    batch.append_time_ms = duplicate.timestamp_ms
    log.duplicates += 1
    return 0


cdef int roll_is_due(
    Log* log, Segment* segment, int64_t batch_bytes, int64_t last_offset, int64_t max_timestamp_ms,
    int64_t pending_bytes, int64_t now_ms
) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    cdef int64_t size_bytes = segment.size_bytes + pending_bytes
    cdef int64_t waited_ms
    if size_bytes == 0:
        return 0
    if size_bytes > log.settings.segment_bytes - batch_bytes:
        return 1
    if last_offset - segment.base_offset > INT32_MAX:
        return 1
    if pending_bytes:             # what follows was asked when the write's first batch came
        return 0
    # By the first batch's own time, so that a log filled with old records rolls as it did once.
    if part.first_timestamp_ms >= 0:
        waited_ms = max_timestamp_ms - part.first_timestamp_ms
    else:
        waited_ms = now_ms - part.created_ms
    return (waited_ms > log.settings.segment_ms - log.settings.segment_jitter_ms
            or segment_index_full(segment))


cdef int note_producer(Log* log, const Write* write, const Batch* batch) noexcept nogil:
    # 0 or ENOMEM.
    cdef Bound start
    if batch.marker != NULL:
        return producers_note_marker(
            &log.producers, batch.producer_id, batch.producer_epoch, batch.marker,
            batch.base_offset, batch.max_timestamp_ms)
    start.offset = batch.base_offset
    start.segment_base = active_of(log).base_offset
    start.position = active_of(log).size_bytes + write.size_bytes
    return producers_note(
        &log.producers, batch.producer_id, batch.producer_epoch, batch.base_sequence,
        batch.record_count - 1, batch.base_offset, batch.max_timestamp_ms,
        &start if batch.attributes & TRANSACTIONAL_BIT else NULL)


cdef int place(Log* log, Write* write, Batch* batch) noexcept nogil:
    batch.base_offset = write.next_offset
    batch.last_offset = batch.base_offset + batch.record_count - 1
    kb_put_u64(batch.data + AT_BASE_OFFSET, <uint64_t>batch.base_offset)
    kb_put_u32(batch.data + AT_LEADER_EPOCH, <uint32_t>write.leader_epoch)
    if batch.producer_id >= 0 and note_producer(log, write, batch) != 0:
        refuse_batch(batch, KAFKA_STORAGE_ERROR, "no memory to remember the producer")
        batch.base_offset = -1
        batch.last_offset = -1
        return 0
    write.batches[write.count] = batch
    write.count += 1
    write.size_bytes += batch.length_bytes
    write.next_offset = batch.last_offset + 1
    return 1


# --- Writing --------------------------------------------------------------------------------------

cdef int write_out(
    Segment* segment, const iovec* vectors, int32_t count, int64_t size_bytes
) noexcept nogil:
    cdef int64_t written
    while True:
        written = files.pwritev(segment.fd, vectors, count, segment.size_bytes)
        if written >= 0 or errno != EINTR:
            break
    if written == size_bytes:
        return 0
    while files.ftruncate(segment.fd, segment.size_bytes) < 0:
        if errno != EINTR:
            return -1
    return 1


cdef int write_batches(Segment* segment, const Write* write) noexcept nogil:
    cdef iovec vectors[BATCHES_PER_WRITE]
    cdef int32_t at
    for at in range(write.count):
        vectors[at].iov_base = write.batches[at].data
        vectors[at].iov_len = write.batches[at].length_bytes
    return write_out(segment, vectors, write.count, write.size_bytes)


cdef void publish(Log* log, Segment* segment, Write* write) noexcept nogil:
    cdef int64_t position = segment.size_bytes
    cdef int64_t records = 0
    cdef Header header
    cdef Batch* batch
    cdef int32_t at
    for at in range(write.count):
        batch = write.batches[at]
        header.base_offset = batch.base_offset
        header.last_offset_delta = batch.record_count - 1
        header.max_timestamp_ms = batch.max_timestamp_ms
        header.size_bytes = batch.length_bytes
        header.record_count = batch.record_count
        if not segment_note_batch(segment, position, &header, log.settings.index_interval_bytes):
            kb_store_int(&log.online, 0)
        recent_add(log, batch.base_offset, position, batch.length_bytes)
        position += batch.length_bytes
        records += batch.record_count
    kb_store_i64(&segment.size_bytes, position)
    kb_store_i64(&log.log_end_offset, write.next_offset)
    if write.next_offset - log.recovery_point >= log.settings.flush_messages:
        kb_store_int(&log.flush_due, 1)
    kb_add_i64(&log.appended_bytes, write.size_bytes)
    kb_add_i64(&log.appended_records, records)
    kb_add_i64(&log.appended_batches, write.count)
    log.writes += 1


cdef void refuse_unwritten(Batch* batch, int64_t log_end_offset) noexcept nogil:
    # Those of the failed write, and duplicates that were answered with an offset of it.
    while batch != NULL:
        if batch.error == NO_ERROR and batch.base_offset >= log_end_offset:
            refuse_batch(batch, KAFKA_STORAGE_ERROR, "the log cannot be written")
            batch.base_offset = -1
            batch.last_offset = -1
        batch = batch.next


cdef int aborted_before_write(Log* log, Segment* segment) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    return aborted_write(
        &part.aborted, part.aborted_path, log.producers.aborted, log.producers.aborted_count)


cdef void aborted_after_write(Log* log, Segment* segment, int is_written) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    if is_written:
        if part.aborted.count == 0:
            log.named_base_offset = -1       # the next flush has its file's name on the disk, too
        aborted_publish(&part.aborted, log.producers.aborted_count)
        kb_store_int(&log.has_aborted, 1)
    elif aborted_take_back(&part.aborted) != 0:
        kb_store_int(&log.online, 0)
    log.producers.aborted_count = 0


cdef int flush_write(Log* log, Write* write) noexcept nogil:
    # Writes what has been placed. 0, or -1: it failed, and its batches are answered.
    cdef Segment* segment = active_of(log)
    cdef int status
    if write.count == 0:
        return 0
    begin_writing_locked(log, write.size_bytes)
    status = segment_reserve(segment, write.count)
    if status == 0 and log.producers.aborted_count:
        status = aborted_before_write(log, segment)
    if status == 0:
        status = write_batches(segment, write)
    end_writing_locked(log, write.size_bytes)
    if log.producers.aborted_count:
        aborted_after_write(log, segment, status == 0)
    if status == 0:
        publish(log, segment, write)
        producers_commit(&log.producers)
    else:
        producers_roll_back(&log.producers)
        log.failed_writes += 1
        if status < 0:
            kb_store_int(&log.online, 0)
        refuse_unwritten(write.first, log.log_end_offset)
    write.count = 0
    write.size_bytes = 0
    write.next_offset = log.log_end_offset
    return 0 if status == 0 else -1


cdef void refuse_batches(Batch* first, int16_t error, const char* message) noexcept nogil:
    cdef Batch* batch = first
    while batch != NULL:
        if batch.error == NO_ERROR:
            refuse_batch(batch, error, message)
        batch = batch.next


cdef void log_append_locked(
    Log* log, Batch* first, int32_t leader_epoch, int64_t now_ms
) noexcept nogil:
    cdef Write write              # 1 KB of pointers; write_batches has 2 KB of buffers
    cdef Batch* batch = first
    cdef int status
    if not log.online:
        refuse_batches(first, KAFKA_STORAGE_ERROR, "the log is offline")
        return
    write.first = first
    write.leader_epoch = leader_epoch
    write.count = 0
    write.size_bytes = 0
    write.next_offset = log.log_end_offset
    while batch != NULL:
        if admit(log, batch, now_ms):
            status = 0
            if write.count == BATCHES_PER_WRITE:
                status = flush_write(log, &write)
            if status == 0 and roll_is_due(
                    log, active_of(log), batch.length_bytes,
                    write.next_offset + batch.record_count - 1, batch.max_timestamp_ms,
                    write.size_bytes, now_ms):
                status = flush_write(log, &write)
                if status == 0:
                    status = log_roll(log, log.log_end_offset, now_ms)
                    log.failed_writes += status != 0
            if status != 0:
                break
            place(log, &write, batch)
        batch = batch.next
    # A failed write leaves `batch` at the first that was not placed: it and the rest go with it.
    if batch == NULL:
        status = flush_write(log, &write)
    else:
        refuse_batches(batch, KAFKA_STORAGE_ERROR, "the log cannot be written")
