# cython: language_level=3
"""The log as Python sees it: `LocalLog`, the face of the units in kbroker/log/*/_*.pyx.

The request path never comes here: it holds the `Partition*` of a replica, which holds the `Log*`.
Python opens, configures, recovers, flushes and closes a log; what is appended and read goes through
its replica (`kbroker/replica/_replica`). Every method gives up the GIL before it waits for the
log's lock or the disk, and none calls back.

A log begins offline: its segments are loaded one by one (`log/opening/_opening`), its producers
restored, then `begin` puts it online. `close` or the last reference ends it; slices that were lent
keep their segment open beyond that. A failing disk is an OSError.
"""

import os

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.errno cimport EFAULT
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from kbroker.core._atomics cimport kb_load_i64, kb_load_int, kb_store_i64, kb_store_int
from kbroker.core._sync cimport kb_now_ns, kb_wall_ms
from kbroker.log.engine._epochs cimport epochs_replace
from kbroker.log.engine._flush_times cimport (
    FlushTimes, flush_figures_acquire, flush_figures_release)
from kbroker.log.engine._producer_copies cimport (
    ProducerCopies, producer_batch, producers_copy, producers_free, snapshot_bytes, snapshot_write)
from kbroker.log.engine._producer_state cimport (
    Producer, ProducerBatch, Transaction, producers_clear, producers_expire, producers_restore,
    producers_restore_ended)
from kbroker.log.engine._segment cimport (
    part_of, segment_create, segment_drop_reference, segment_end_times)
from kbroker.log.engine._storage cimport (
    EpochStart, RULE_CODEC_AT, RULE_COMPACTED, RULE_LOG_APPEND_TIME, RULE_RECOMPRESS, Log,
    active_of, lock_log, lock_to_look, log_add_segment, log_drop_segments_after, log_new,
    log_release, log_roll, log_seal, log_size_bytes, recent_clear, unlock_log)
from kbroker.log.engine._types cimport Segment
from kbroker.log.opening._recovery cimport (
    find_newer_epoch, has_marker_between, replay_producers)
from kbroker.log.upkeep._flush cimport (
    FLUSH_RECORDS, FLUSH_ROLLED, FLUSH_SYNCED_VOLUME, FLUSH_WHOLE, FlushDepth, log_flush)

from kbroker.errors import InvariantError
from kbroker.log.engine._results import EndedTransaction, ProducerEntry


cdef object os_error(int status, str path):
    return OSError(status, os.strerror(status), path)


cdef ProducerCopies _copied_producers(Log* log):
    cdef ProducerCopies copies
    cdef int status
    with nogil:
        status = producers_copy(log, &copies)
    if status:
        raise MemoryError
    return copies


# The figures of `LocalLog.statistics`, in its order.
_STATISTICS = (
    "log_start_offset", "log_end_offset", "recovery_point", "size_bytes", "segments",
    "producers", "producers_evicted", "appended_bytes",
    "appended_records", "appended_batches",
    "replicated_bytes", "writes", "failed_writes",
    "failed_flushes", "duplicates", "rolls", "fast_reads", "file_scans",
)


cdef class LocalLog:
    """One partition's log. See the module."""

    def __cinit__(self, str directory not None, str topic not None, int index, topic_id, *unused):
        cdef bytes path = os.fsencode(directory)
        self.directory = directory
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        cdef const char* c_path = path
        with nogil:
            self.storage = log_new(c_path)
        if self.storage == NULL:
            raise MemoryError

    def __init__(self, directory, topic, index, topic_id):
        self.configure()

    def __dealloc__(self):
        log_release(self.storage)

    # --- Settings ---------------------------------------------------------------------------------

    def configure(
        self, *, int64_t segment_bytes = 1 << 30, int64_t segment_ms = 7 * 86_400_000,
        int64_t segment_jitter_ms = 0, int64_t index_interval_bytes = 4096,
        int64_t segment_index_bytes = 10 << 20, int64_t max_message_bytes = 1_048_588,
        int64_t min_insync_replicas = 1, bint log_append_time = False, int stored_codec = -1,
        bint compacted = False, int64_t timestamp_before_max_ms = INT64_MAX,
        int64_t timestamp_after_max_ms = INT64_MAX, int64_t flush_messages = INT64_MAX,
    ) -> None:
        """The topic's settings, all at once; what is left out gets Kafka's default. Does not
        wait for a write that is under way: each of them is asked for alone."""
        cdef Log* log = self.storage
        with nogil:
            lock_to_look(log)
            kb_store_i64(&log.settings.segment_bytes, segment_bytes)
            log.settings.segment_ms = segment_ms
            log.settings.segment_jitter_ms = segment_jitter_ms
            log.settings.index_interval_bytes = index_interval_bytes
            log.settings.index_bytes = segment_index_bytes
            log.settings.flush_messages = flush_messages
            log.settings.min_in_sync = <int32_t>min_insync_replicas
            kb_store_i64(&log.rules.timestamp_before_max_ms, timestamp_before_max_ms)
            kb_store_i64(&log.rules.timestamp_after_max_ms, timestamp_after_max_ms)
            kb_store_i64(&log.rules.max_message_bytes, max_message_bytes)
            kb_store_i64(&log.rules.flags,
                         (RULE_COMPACTED if compacted else 0)
                         | (RULE_LOG_APPEND_TIME if log_append_time else 0)
                         | (RULE_RECOMPRESS | <int64_t>stored_codec << RULE_CODEC_AT
                            if stored_codec >= 0 else 0))
            unlock_log(log)

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
            epochs_replace(self.storage, fresh, count)

    def count_flushes(self, FlushTimes times not None) -> None:
        """Where its flushes are counted from now on: once, before there are any."""
        flush_figures_acquire(times.figures)
        flush_figures_release(self.storage.flush_figures)
        self.storage.flush_figures = times.figures

    # --- Opening ----------------------------------------------------------------------------------

    def create_segment(self, int64_t base_offset, int64_t now_ms = -1) -> None:
        """Begins an empty log at an offset."""
        cdef Log* log = self.storage
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
        """A batch of a producer as the snapshot has it; of one producer the oldest comes first."""
        cdef ProducerBatch last
        cdef int64_t producer_id = entry.producer_id
        cdef int64_t first_offset = entry.transaction_first_offset
        cdef int32_t coordinator_epoch = entry.coordinator_epoch
        cdef int16_t epoch = entry.producer_epoch
        cdef Log* log = self.storage
        cdef int status
        last.last_sequence = entry.last_sequence
        last.last_offset = entry.last_offset
        last.offset_delta = entry.offset_delta
        last.timestamp_ms = entry.timestamp_ms
        with nogil:
            lock_log(self.storage)
            status = producers_restore(
                &log.producers, producer_id, epoch, coordinator_epoch, &last, first_offset)
            unlock_log(self.storage)
        if status:
            raise MemoryError

    def expire_producers(self, int64_t before_ms) -> int:
        """Forgets producers whose last batch is older; answers how many."""
        cdef int64_t expired
        with nogil:
            lock_log(self.storage)
            expired = producers_expire(&self.storage.producers, before_ms)
            unlock_log(self.storage)
        return expired

    def producer_entries(self) -> tuple:
        """(log end offset, [ProducerEntry]): the last batch of each producer, as of that offset."""
        cdef ProducerCopies copies = _copied_producers(self.storage)
        cdef Producer* producer
        cdef ProducerBatch batch
        cdef int64_t at
        entries = []
        try:
            for at in range(copies.count):
                producer = &copies.producers[at]
                batch = producer_batch(producer, producer.batch_count - 1)
                entries.append(ProducerEntry(
                    producer.producer_id, producer.epoch, batch.last_sequence, batch.last_offset,
                    batch.offset_delta, batch.timestamp_ms, producer.coordinator_epoch,
                    copies.first_offsets[at]))
        finally:
            producers_free(&copies)
        return copies.end, entries

    def producer_snapshot(self) -> tuple:
        """(log end offset, bytes): the entries of a snapshot file as of that offset, with all
        batches that a retry is compared with. Without the GIL, and with the lock for a copy."""
        cdef ProducerCopies copies = _copied_producers(self.storage)
        cdef bytes entries
        cdef uint8_t* at
        try:
            entries = PyBytes_FromStringAndSize(NULL, snapshot_bytes(&copies))
            at = <uint8_t*>PyBytes_AsString(entries)
            with nogil:
                snapshot_write(&copies, at)
        finally:
            producers_free(&copies)
        return copies.end, entries

    def restore_ended(self, ended: EndedTransaction) -> None:
        """A transaction that has ended, and whose marker the high watermark may not have passed; in
        the order of their markers, before those that are replayed."""
        cdef int64_t producer_id = ended.producer_id
        cdef int64_t first_offset = ended.first_offset
        cdef int64_t marker_offset = ended.marker_offset
        cdef Log* log = self.storage
        cdef int status
        with nogil:
            lock_log(log)
            status = producers_restore_ended(
                &log.producers, producer_id, first_offset, marker_offset)
            unlock_log(log)
        if status:
            raise MemoryError

    def forget_producers(self) -> list:
        """Everything about them; answers the transactions that have ended, but whose markers the
        high watermark has not passed: EndedTransaction, in the order of their markers."""
        cdef Log* log = self.storage
        cdef Transaction* transaction
        cdef Transaction* copies
        cdef int64_t count = 0, at
        with nogil:
            lock_log(log)
            transaction = log.producers.first_ended
            while transaction != NULL:
                count += 1
                transaction = transaction.ended_after
            copies = <Transaction*>calloc(<size_t>count + 1, sizeof(Transaction))
            if copies != NULL:
                transaction = log.producers.first_ended
                for at in range(count):
                    copies[at] = transaction[0]
                    transaction = transaction.ended_after
                producers_clear(&log.producers)
            unlock_log(log)
        if copies == NULL:
            raise MemoryError
        ended = [
            EndedTransaction(
                copies[at].producer_id, copies[at].first_offset, copies[at].marker_offset)
            for at in range(count)
        ]
        free(copies)
        return ended

    def has_marker_between(self, int64_t from_offset, int64_t end_offset) -> bool:
        """Whether a transaction's marker may lie in the log from one offset on, below the other."""
        cdef Log* log = self.storage
        cdef int32_t at
        cdef int found = 0, status = 0
        with nogil:
            lock_log(log)
            for at in range(log.segment_count):
                if log.segments[at].base_offset >= end_offset:
                    break
                if at + 1 < log.segment_count and log.segments[at + 1].base_offset <= from_offset:
                    continue
                found = has_marker_between(log.segments[at], from_offset, end_offset, &status)
                if found or status:
                    break
            unlock_log(log)
        if status:
            raise os_error(status, self.directory)
        return bool(found)

    def rebuilt_from(self) -> int:
        """The base offset of the first segment whose aborted transactions a replay has to find
        again, -1: of none. Before the log is online: no lock is taken."""
        cdef Log* log = self.storage
        cdef int32_t at
        for at in range(log.segment_count):
            if (part_of(log.segments[at]).rebuilds_aborted
                    and part_of(log.segments[at]).has_markers):
                return log.segments[at].base_offset
        return -1

    def replay_producers(self, int64_t from_offset, int64_t high_watermark = 0) -> None:
        """Notes the producers of every batch at or after an offset."""
        cdef Log* log = self.storage
        cdef int status = 0
        cdef int32_t at
        with nogil:
            lock_log(log)             # after a cut others look at producers, and trim segments
            for at in range(log.segment_count):
                if at + 1 < log.segment_count and log.segments[at + 1].base_offset <= from_offset:
                    continue
                status = replay_producers(
                    &log.producers, log.segments[at], from_offset, high_watermark)
                if status:
                    break
                if part_of(log.segments[at]).aborted.count:
                    kb_store_int(&log.has_aborted, 1)
            unlock_log(log)
        if status:
            raise os_error(status, self.directory)

    def find_epochs(self, int32_t above = -1, int64_t from_offset = 0) -> list:
        """(leader epoch, start offset) of every epoch that the batches carry, oldest first.

        Of those above one, as batches at or after an offset have them. Before the log is online:
        no lock is taken.
        """
        cdef Log* log = self.storage
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
        """Puts the log online; its segments are loaded."""
        cdef Log* log = self.storage
        if log.segment_count == 0 or not log_start_offset <= log_end_offset:
            raise InvariantError(f"{self.directory}: begins without a segment or after its end")
        with nogil:
            lock_log(log)
            log.log_start_offset = log_start_offset
            log.log_end_offset = log_end_offset
            kb_store_i64(&log.recovery_point, recovery_point)
            kb_store_i64(&log.settled_offset, recovery_point)
            kb_store_i64(&log.flushed_ns, kb_now_ns())
            kb_store_int(&log.online, 1)
            unlock_log(log)

    def refuse_producers(self, bint refused) -> None:
        """What they send is KAFKA_STORAGE_ERROR from now on, or no longer; all else goes on."""
        kb_store_int(&self.storage.refuses_producers, refused)

    @property
    def refuses_producers(self) -> bool:
        return bool(kb_load_int(&self.storage.refuses_producers))

    # --- Numbers ----------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return kb_load_i64(&self.storage.log_start_offset)

    @property
    def log_end_offset(self) -> int:
        return kb_load_i64(&self.storage.log_end_offset)

    @property
    def first_undecided_offset(self) -> int:
        """Where the first transaction begins that is open, or whose marker the high watermark has
        not passed; beyond every offset, if there is none."""
        cdef int64_t offset = INT64_MAX
        with nogil:
            lock_to_look(self.storage)
            if self.storage.producers.first_transaction != NULL:
                offset = self.storage.producers.first_transaction.first_offset
            unlock_log(self.storage)
        return offset

    @property
    def online(self) -> bool:
        return bool(kb_load_int(&self.storage.online))

    @property
    def failed_writes(self) -> int:
        """Writes and rolls that failed since it was opened; if it is online, they were undone."""
        return kb_load_i64(&self.storage.failed_writes)

    @property
    def recovery_point(self) -> int:
        return kb_load_i64(&self.storage.recovery_point)

    @property
    def settled_offset(self) -> int:
        """Everything below is on the disk with its indexes: what a clean stop has to leave."""
        return kb_load_i64(&self.storage.settled_offset)

    @property
    def flushed_ms(self) -> int:
        """When something of it was brought to the disk last, on the monotonic clock."""
        return kb_load_i64(&self.storage.flushed_ns) // 1_000_000

    @property
    def active_base_offset(self) -> int:
        """The base offset of the segment that is appended to; -1 of a closed log."""
        cdef int64_t base_offset = -1
        with nogil:
            lock_to_look(self.storage)
            if self.storage.segment_count:
                base_offset = active_of(self.storage).base_offset
            unlock_log(self.storage)
        return base_offset

    @property
    def size_bytes(self) -> int:
        cdef int64_t size_bytes
        with nogil:
            lock_to_look(self.storage)
            size_bytes = log_size_bytes(self.storage)
            unlock_log(self.storage)
        return size_bytes

    # --- Ending -----------------------------------------------------------------------------------

    def roll(self, int64_t now_ms = -1) -> None:
        """Ends the active segment, unless it is empty."""
        cdef Log* log = self.storage
        cdef int status = 0
        with nogil:
            lock_log(self.storage)
            if self.storage.online:
                status = log_roll(
                    log, self.storage.log_end_offset, now_ms if now_ms >= 0 else kb_wall_ms())
            unlock_log(self.storage)
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
            status = log_flush(self.storage, depth)
        if status:
            raise os_error(status, self.directory)
        return self.recovery_point

    def end_times(self) -> None:
        """The active segment's time index is as `close` leaves it, so that a sync before that has
        it on the disk. OSError."""
        cdef int status = 0
        with nogil:
            lock_log(self.storage)
            if self.storage.online:
                status = segment_end_times(active_of(self.storage))
                if status == EFAULT:  # the index is wrong
                    kb_store_int(&self.storage.online, 0)
            unlock_log(self.storage)
        if status:
            raise os_error(status, self.directory)

    def go_offline(self) -> None:
        """Appends and reads are refused from here on; waits for nothing, and lets go of nothing."""
        kb_store_int(&self.storage.online, 0)

    def close(self) -> None:
        """Takes the log offline, cuts its indexes to size and lets go of its files."""
        cdef Log* log = self.storage
        with nogil:
            lock_log(log)
            kb_store_int(&log.online, 0)
            log_seal(log)
            recent_clear(log)
            log_drop_segments_after(log, 0)
            unlock_log(log)

    def statistics(self) -> dict:
        """Counters and sizes, for metrics and the admin page."""
        cdef Log* log = self.storage
        cdef int64_t[18] figures
        with nogil:
            lock_to_look(log)
            figures = [
                kb_load_i64(&log.log_start_offset), kb_load_i64(&log.log_end_offset),
                kb_load_i64(&log.recovery_point), log_size_bytes(log), log.segment_count,
                log.producers.by_id.count, log.producers.evicted, kb_load_i64(&log.appended_bytes),
                kb_load_i64(&log.appended_records), kb_load_i64(&log.appended_batches),
                kb_load_i64(&log.replicated_bytes), log.writes, log.failed_writes,
                log.failed_flushes, log.duplicates, log.rolls, log.fast_reads, log.file_scans,
            ]
            unlock_log(log)
        return dict(zip(_STATISTICS, figures, strict=True))
