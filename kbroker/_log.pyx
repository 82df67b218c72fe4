# cython: language_level=3
"""The log as Python sees it: `PartitionLog`, the face of the units in kbroker/log/_*.pyx.

The request path never comes here: it holds the `Partition*` behind the object. Python opens,
configures, recovers, flushes and closes a log, and tests read and append through it. Every method
gives up the GIL before it waits for the partition's lock or the disk, and none calls back.

A log begins offline: its segments are loaded one by one (`log/_opening`), its producers restored,
then `begin` puts it online. `close` or the last reference ends it; slices that were lent keep
their segment open beyond that. Expected trouble is a KafkaError; a failing disk is an OSError.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport (
    INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t)
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kbroker._atomics cimport kb_load_i64, kb_load_int, kb_store_i64, kb_store_int
from kbroker._sync cimport kb_now_ns, kb_wall_ms
from kbroker.log._flush cimport (
    FLUSH_RECORDS, FLUSH_ROLLED, FLUSH_SYNCED_VOLUME, FLUSH_WHOLE, FlushDepth, partition_flush)
from kbroker.log._partition cimport (
    NEEDS_PYTHON, Batch, Partition, Segment, partition_append, partition_new,
    partition_read, partition_readable_bytes, partition_release,
    partition_set_high_watermark, partition_set_leadership, partition_validate)
from kbroker.log._producer_state cimport (
    Producer, ProducerBatch, producers_expire, producers_restore)
from kbroker.log._recovery cimport find_newer_epoch, replay_producers
from kbroker.log._segment cimport segment_create, segment_drop_reference, segment_seal
from kbroker.log._epochs cimport epochs_replace
from kbroker.log._slice cimport Slice
from kbroker.log._storage cimport (
    EpochStart, RULE_CODEC_AT, RULE_COMPACTED, RULE_LOG_APPEND_TIME, RULE_RECOMPRESS, Log,
    active_of, lock_partition, lock_to_look, log_add_segment, log_drop_segments_after, log_of,
    log_roll, log_size_bytes, recent_clear, unlock_partition)
from kbroker.log._time_search cimport TimedOffset, find_by_time, find_max_timestamp

from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.log._results import AppendResult, ProducerEntry

cdef enum:
    LATEST_PRODUCE_VERSION = 13


cdef str text_of(const char* message):
    return message.decode("ascii") if message != NULL else ""


cdef object _timed(int16_t error, const TimedOffset* found):
    if error:
        raise KafkaError(ErrorCode(error), "the log cannot be searched")
    if found.offset < 0:
        return None
    return found.offset, found.timestamp_ms, found.leader_epoch, bool(found.needs_python)


cdef object os_error(int status, str path):
    return OSError(status, os.strerror(status), path)


cdef class PartitionLog:
    """One partition's log. See the module for who calls what when."""

    def __cinit__(self, str directory not None, str topic not None, int index, topic_id):
        cdef bytes path = os.fsencode(directory)
        cdef bytes ident = topic_id.bytes
        self.directory = directory
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.partition = partition_new(path, index, <const uint8_t*>PyBytes_AS_STRING(ident))
        if self.partition == NULL:
            raise MemoryError

    def __init__(self, directory, topic, index, topic_id):
        self.configure()

    def __dealloc__(self):
        if self.partition != NULL:
            partition_release(self.partition)

    # --- Settings ---------------------------------------------------------------------------------

    def configure(
        self, *, int64_t segment_bytes = 1 << 30, int64_t segment_ms = 7 * 86_400_000,
        int64_t segment_jitter_ms = 0, int64_t index_interval_bytes = 4096,
        int64_t segment_index_bytes = 10 << 20, int64_t max_message_bytes = 1_048_588,
        int64_t min_insync_replicas = 1, bint log_append_time = False, int stored_codec = -1,
        bint compacted = False, int64_t timestamp_before_max_ms = INT64_MAX,
        int64_t timestamp_after_max_ms = INT64_MAX, int64_t flush_messages = INT64_MAX,
    ) -> None:
        """The topic's settings, all at once; what is left out gets Kafka's default."""
        cdef Partition* partition = self.partition
        cdef Log* log = log_of(partition)
        with nogil:
            lock_partition(partition)
            log.settings.segment_bytes = segment_bytes
            log.settings.segment_ms = segment_ms
            log.settings.segment_jitter_ms = segment_jitter_ms
            log.settings.index_interval_bytes = index_interval_bytes
            log.settings.index_bytes = segment_index_bytes
            log.settings.flush_messages = flush_messages
            kb_store_i64(&log.rules.timestamp_before_max_ms, timestamp_before_max_ms)
            kb_store_i64(&log.rules.timestamp_after_max_ms, timestamp_after_max_ms)
            kb_store_i64(&log.rules.max_message_bytes, max_message_bytes)
            kb_store_i64(&log.rules.flags,
                         (RULE_COMPACTED if compacted else 0)
                         | (RULE_LOG_APPEND_TIME if log_append_time else 0)
                         | (RULE_RECOMPRESS | <int64_t>stored_codec << RULE_CODEC_AT
                            if stored_codec >= 0 else 0))
            partition.max_message_bytes = <int32_t>max_message_bytes
            partition.min_in_sync = <int32_t>min_insync_replicas
            partition.log_append_time = log_append_time
            kb_store_int(&partition.recompress, stored_codec >= 0)
            partition.compacted = compacted
            unlock_partition(partition)

    def set_epochs(self, list entries not None) -> None:
        """The leader epochs (epoch, start offset), oldest first, for fetches to ask."""
        cdef int32_t count = <int32_t>len(entries)
        cdef EpochStart* fresh = <EpochStart*>calloc(<size_t>count + 1, sizeof(EpochStart))
        if fresh == NULL:
            raise MemoryError
        for at, (epoch, start_offset) in enumerate(entries):
            fresh[<int>at].epoch = epoch
            fresh[<int>at].start_offset = start_offset
        with nogil:
            epochs_replace(self.partition, fresh, count)

    def set_leadership(
        self, int32_t leader_id, bint is_leader, int32_t leader_epoch, int32_t in_sync_count
    ) -> None:
        """Who leads, in which epoch, and how many replicas are in sync with it."""
        with nogil:
            partition_set_leadership(
                self.partition, leader_id, is_leader, leader_epoch, in_sync_count)

    def set_high_watermark(self, int64_t offset) -> None:
        """Moves the high watermark to a batch's start; beyond the log's end it stops there."""
        cdef int16_t error
        with nogil:
            error = partition_set_high_watermark(self.partition, offset)
        if error:
            raise KafkaError(ErrorCode(error), "the log cannot be read")

    # --- Opening ----------------------------------------------------------------------------------

    def create_segment(self, int64_t base_offset, int64_t now_ms = -1) -> None:
        """Begins an empty log at an offset."""
        cdef Log* log = log_of(self.partition)
        cdef Segment* segment
        cdef int status = 0
        with nogil:
            segment = segment_create(
                log.directory, base_offset, log.settings.index_bytes,
                now_ms if now_ms >= 0 else kb_wall_ms(), &status)
            if segment != NULL:
                status = log_add_segment(log, segment)
                if status != 0:
                    segment_drop_reference(segment)
        if status != 0:
            raise os_error(status, self.directory)

    def restore_producer(self, entry: ProducerEntry) -> None:
        """A producer as the snapshot has it."""
        cdef ProducerBatch last
        cdef int64_t producer_id = entry.producer_id
        cdef int64_t transaction_first_offset = entry.transaction_first_offset
        cdef int32_t coordinator_epoch = entry.coordinator_epoch
        cdef int16_t epoch = entry.producer_epoch
        cdef Log* log = log_of(self.partition)
        cdef int status
        last.last_sequence = entry.last_sequence
        last.last_offset = entry.last_offset
        last.offset_delta = entry.offset_delta
        last.timestamp_ms = entry.timestamp_ms
        with nogil:
            lock_partition(self.partition)
            status = producers_restore(
                &log.producers, producer_id, epoch, coordinator_epoch, &last,
                transaction_first_offset)
            unlock_partition(self.partition)
        if status:
            raise MemoryError

    def expire_producers(self, int64_t before_ms) -> int:
        """Forgets producers whose last batch is older; answers how many."""
        cdef int64_t expired
        with nogil:
            lock_partition(self.partition)
            expired = producers_expire(&log_of(self.partition).producers, before_ms)
            unlock_partition(self.partition)
        return expired

    def producer_entries(self) -> tuple:
        """(log end offset, [ProducerEntry]): the last batch of each producer, as of that offset."""
        cdef Log* log = log_of(self.partition)
        cdef Producer* producer
        cdef Producer* copies
        cdef ProducerBatch last
        cdef int64_t count = 0, at, end
        with nogil:
            lock_partition(self.partition)
            end = self.partition.log_end_offset
            copies = <Producer*>calloc(<size_t>log.producers.count + 1, sizeof(Producer))
            producer = log.producers.oldest
            while producer != NULL and copies != NULL:
                copies[count] = producer[0]
                count += 1
                producer = producer.newer
            unlock_partition(self.partition)
        if copies == NULL:
            raise MemoryError
        entries = []
        for at in range(count):
            last.last_sequence = -1
            last.last_offset = -1
            last.offset_delta = 0
            last.timestamp_ms = copies[at].last_timestamp_ms
            if copies[at].batch_count:
                last = copies[at].batches[copies[at].batch_count - 1]
            entries.append(ProducerEntry(
                copies[at].producer_id, copies[at].epoch, last.last_sequence, last.last_offset,
                last.offset_delta, last.timestamp_ms, copies[at].coordinator_epoch,
                copies[at].transaction_first_offset))
        free(copies)
        return end, entries

    def replay_producers(self, int64_t from_offset) -> None:
        """Notes the producers of every batch at or behind an offset."""
        cdef Log* log = log_of(self.partition)
        cdef int status = 0
        cdef int32_t at
        with nogil:
            for at in range(log.segment_count):
                if at + 1 < log.segment_count and log.segments[at + 1].base_offset <= from_offset:
                    continue
                status = replay_producers(&log.producers, log.segments[at], from_offset)
                if status:
                    break
        if status:
            raise os_error(status, self.directory)

    def find_epochs(self, int32_t above = -1, int64_t from_offset = 0) -> list:
        """(leader epoch, start offset) of every epoch that the batches carry, oldest first.

        Of those above one, as batches at or behind an offset have them.
        """
        cdef Log* log = log_of(self.partition)
        cdef int32_t at, epoch = above
        cdef int64_t offset = from_offset
        cdef int found, status = 0
        epochs = []
        for at in range(log.segment_count):
            if at + 1 < log.segment_count and log.segments[at + 1].base_offset <= from_offset:
                continue
            found = 1
            while found == 1:
                with nogil:
                    found = find_newer_epoch(log.segments[at], &epoch, &offset, &status)
                if found == 1:
                    epochs.append((epoch, offset))
            if found < 0:
                raise os_error(status, self.directory)
        return epochs

    def begin(
        self, int64_t log_start_offset, int64_t log_end_offset, int64_t recovery_point
    ) -> None:
        """Puts the log online; its segments are loaded. The high watermark is the log's start."""
        cdef Partition* partition = self.partition
        cdef Log* log = log_of(partition)
        if log.segment_count == 0 or not log_start_offset <= log_end_offset:
            raise InvariantError(f"{self.directory}: begins without a segment or behind its end")
        with nogil:
            lock_partition(partition)
            partition.log_start_offset = log_start_offset
            partition.log_end_offset = log_end_offset
            partition.high_watermark = log_start_offset
            partition.last_stable_offset = log_start_offset
            log.high_watermark_base = log.segments[0].base_offset
            log.high_watermark_position = 0
            kb_store_i64(&log.recovery_point, recovery_point)
            kb_store_i64(&log.settled_offset, recovery_point)
            kb_store_i64(&log.flushed_ns, kb_now_ns())
            partition.online = 1
            unlock_partition(partition)

    # --- Appending and reading --------------------------------------------------------------------

    def append(
        self, batch: bytes, *, int acks = 1, int64_t now_ms = -1, bint prechecked = False,
        int api_version = LATEST_PRODUCE_VERSION,
    ) -> AppendResult:
        """Appends one record batch as a produce would, or raises what the produce would answer."""
        result = self.append_group(
            [batch], acks=acks, now_ms=now_ms, prechecked=prechecked, api_version=api_version)[0]
        if result.error:
            raise KafkaError(ErrorCode(result.error), result.error_message)
        return result

    def append_group(
        self, batches: list, *, int acks = 1, int64_t now_ms = -1, bint prechecked = False,
        int api_version = LATEST_PRODUCE_VERSION,
    ) -> list:
        """Appends several batches as the group of one run. The bytes are copied first."""
        cdef Py_ssize_t count = len(batches), at
        cdef int64_t total = sum(len(batch) for batch in batches)
        cdef Batch* group = <Batch*>calloc(<size_t>count + 1, sizeof(Batch))
        cdef uint8_t* frame = <uint8_t*>calloc(<size_t>total + 1, 1)
        cdef uint8_t* place = frame
        cdef bytes source
        cdef int verdict = 0, status = 0
        try:
            if group == NULL or frame == NULL:
                raise MemoryError
            for at in range(count):
                source = batches[at]
                memcpy(place, PyBytes_AS_STRING(source), <size_t>len(source))
                group[at].data = place
                group[at].length_bytes = <uint32_t>len(source)
                group[at].acks = acks
                group[at].api_version = api_version
                group[at].prechecked = prechecked
                group[at].next = &group[at + 1] if at + 1 < count else NULL
                place += len(source)
            with nogil:
                if now_ms < 0:
                    now_ms = kb_wall_ms()
                for at in range(count):
                    verdict |= partition_validate(self.partition, &group[at], now_ms)
                if verdict == 0 and count:
                    partition_append(self.partition, group, now_ms)
                    if kb_load_int(&self.partition.flush_due):
                        status = partition_flush(self.partition, FLUSH_RECORDS)
            if status:
                raise os_error(status, self.directory)
            if verdict == NEEDS_PYTHON:
                raise NotImplementedError("the records are packed with a codec without a library")
            return [
                AppendResult(
                    group[at].error, group[at].base_offset, group[at].last_offset,
                    group[at].append_time_ms, group[at].log_start_offset, group[at].error_record,
                    text_of(group[at].error_message))
                for at in range(count)
            ]
        finally:
            free(group)
            free(frame)

    def read(
        self, int64_t offset, int64_t max_bytes = 1 << 20, *, bint whole_first = True,
        bint read_committed = False,
    ) -> bytes:
        """The bytes that a fetch would get."""
        slice = self.borrow(
            offset, max_bytes, whole_first=whole_first, read_committed=read_committed)
        try:
            return slice.read()
        finally:
            slice.release()

    def borrow(
        self, int64_t offset, int64_t max_bytes = 1 << 20, *, bint whole_first = True,
        bint read_committed = False,
    ) -> Slice:
        """Where a fetch would read, as a slice that keeps its file open."""
        cdef Slice slice = Slice()
        cdef int16_t error
        with nogil:
            error = partition_read(
                self.partition, offset, max_bytes, whole_first, read_committed, 1, &slice.piece)
        if error:
            raise KafkaError(ErrorCode(error), f"offset {offset}")
        return slice

    def find_by_time(self, int64_t timestamp_ms, int64_t from_offset = 0) -> tuple:
        """(offset, timestamp, leader epoch, whether Python has to look into that batch) or None.

        The first record at or behind `from_offset`, below the high watermark, not older.
        """
        cdef TimedOffset found
        cdef int16_t error
        with nogil:
            error = find_by_time(self.partition, timestamp_ms, from_offset, &found)
        return _timed(error, &found)

    def find_max_timestamp(self) -> tuple:
        """The same for the first record with the largest timestamp."""
        cdef TimedOffset found
        cdef int16_t error
        with nogil:
            error = find_max_timestamp(self.partition, &found)
        return _timed(error, &found)

    def readable_bytes(self, int64_t offset, int64_t max_bytes = 1 << 20) -> int:
        """What a waiting fetch asks after each append."""
        cdef int64_t found
        with nogil:
            found = partition_readable_bytes(self.partition, offset, max_bytes, 0)
        return found

    # --- Numbers ----------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return kb_load_i64(&self.partition.log_start_offset)

    @property
    def log_end_offset(self) -> int:
        return kb_load_i64(&self.partition.log_end_offset)

    @property
    def high_watermark(self) -> int:
        return kb_load_i64(&self.partition.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        return kb_load_i64(&self.partition.last_stable_offset)

    @property
    def leader_epoch(self) -> int:
        return self.partition.leader_epoch

    @property
    def online(self) -> bool:
        return bool(self.partition.online)

    @property
    def recovery_point(self) -> int:
        return kb_load_i64(&log_of(self.partition).recovery_point)

    @property
    def settled_offset(self) -> int:
        """Everything below is on the disk with its indexes: what a clean stop has to leave."""
        return kb_load_i64(&log_of(self.partition).settled_offset)

    @property
    def flushed_ms(self) -> int:
        """When something of it was brought to the disk last, on the monotonic clock."""
        return kb_load_i64(&log_of(self.partition).flushed_ns) // 1_000_000

    @property
    def active_base_offset(self) -> int:
        """The base offset of the segment that is appended to; -1 of a closed log."""
        cdef int64_t base_offset = -1
        with nogil:
            lock_to_look(self.partition)
            if log_of(self.partition).segment_count:
                base_offset = active_of(log_of(self.partition)).base_offset
            unlock_partition(self.partition)
        return base_offset

    @property
    def size_bytes(self) -> int:
        cdef int64_t size_bytes
        with nogil:
            lock_to_look(self.partition)
            size_bytes = log_size_bytes(log_of(self.partition))
            unlock_partition(self.partition)
        return size_bytes

    # --- Ending -----------------------------------------------------------------------------------

    def roll(self, int64_t now_ms = -1) -> None:
        """Ends the active segment, unless it is empty."""
        cdef Log* log = log_of(self.partition)
        cdef int status = 0
        with nogil:
            lock_partition(self.partition)
            if self.partition.online:
                status = log_roll(
                    log, self.partition.log_end_offset, now_ms if now_ms >= 0 else kb_wall_ms())
            unlock_partition(self.partition)
        if status:
            raise os_error(status, self.directory)

    def flush(self, *, bint active = True, bint whole = False, bint volume_synced = False) -> int:
        """Brings the log to the disk, without the `active` segment if that is not wanted.

        Answers the recovery point. The lock is not held while the disk works. `whole`: the active
        segment's indexes too. `volume_synced`: the whole volume was, after the last append; it is
        only asked whether a write had failed. OSError: a write is lost, and the log offline.
        """
        cdef FlushDepth depth = FLUSH_ROLLED
        cdef int status
        if volume_synced:
            depth = FLUSH_SYNCED_VOLUME
        elif active:
            depth = FLUSH_WHOLE if whole else FLUSH_RECORDS
        with nogil:
            status = partition_flush(self.partition, depth)
        if status:
            raise os_error(status, self.directory)
        return self.recovery_point

    def flush_if_due(self) -> None:
        """What `flush.messages` asks for behind an append; nothing may be answered before."""
        if kb_load_int(&self.partition.flush_due):
            self.flush()

    def close(self) -> None:
        """Takes the log offline, cuts its indexes to size and lets go of its files."""
        cdef Log* log = log_of(self.partition)
        with nogil:
            lock_partition(self.partition)
            self.partition.online = 0
            self.partition.is_leader = 0
            if log.segment_count:
                segment_seal(active_of(log))
            recent_clear(log)
            log_drop_segments_after(log, 0)
            unlock_partition(self.partition)

    def statistics(self) -> dict:
        """Counters and sizes, for metrics and the admin page."""
        cdef Partition* partition = self.partition
        cdef Log log
        cdef int64_t size_bytes, start, end, mark
        with nogil:
            lock_to_look(partition)
            log = log_of(partition)[0]
            size_bytes = log_size_bytes(&log)
            start = partition.log_start_offset
            end = partition.log_end_offset
            mark = partition.high_watermark
            unlock_partition(partition)
        return {
            "log_start_offset": start,
            "log_end_offset": end,
            "high_watermark": mark,
            "recovery_point": log.recovery_point,
            "size_bytes": size_bytes,
            "segments": log.segment_count,
            "producers": log.producers.count,
            "producers_evicted": log.producers.evicted,
            "appended_bytes": kb_load_i64(&partition.appended_bytes),
            "appended_records": kb_load_i64(&partition.appended_records),
            "appended_batches": kb_load_i64(&partition.appended_batches),
            "writes": log.writes,
            "failed_writes": log.failed_writes,
            "failed_flushes": log.failed_flushes,
            "duplicates": log.duplicates,
            "rolls": log.rolls,
            "fast_reads": log.fast_reads,
            "file_scans": log.file_scans,
        }
