# cython: language_level=3
"""A partition's replica for Python: leadership, the readable offsets, and the log.

The request path holds the `Partition*` inside. The replica manager sets who leads; coordinators,
ListOffsets and tests append and read through here as a produce or a fetch would. Every method gives
up the GIL before it waits for the log's lock or the disk, and none calls back. Expected trouble is
a KafkaError; a failing disk is an OSError.
"""

import os

from cpython.bytes cimport PyBytes_AsString
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kbroker._log cimport LocalLog
from kbroker.core._atomics cimport kb_load_i64, kb_load_int, kb_store_int
from kbroker.core._lock_order cimport lock_now_ns
from kbroker.core._sync cimport kb_now_ns, kb_wall_ms
from kbroker.log.engine._append_follower cimport Followed
from kbroker.log.engine._guards cimport guards_let_go
from kbroker.log.engine._records cimport batch_put_time
from kbroker.log.engine._slice cimport Slice
from kbroker.log.engine._storage cimport NEVER_GIVES_UP, lock_log_until
from kbroker.log.engine._time_search cimport TimedOffset, log_find_by_time, log_find_max_timestamp
from kbroker.log.engine._transactions cimport transaction_check_locked
from kbroker.log.engine._types cimport NEEDS_PYTHON, WAITS_FOR_DISK, Batch, Bound, Marker
from kbroker.log.engine._validate cimport log_validate
from kbroker.log.upkeep._flush cimport FLUSH_RECORDS
from kbroker.log.upkeep._retention cimport Retention
from kbroker.replica._followers cimport Follower, followers_keep_up
from kbroker.replica._high_watermark cimport partition_advance_locked, partition_set_high_watermark
from kbroker.replica._marker_append cimport marker_append
from kbroker.replica._partition cimport (
    FROM_LEADER, TO_HIGH_WATERMARK, TO_LAST_STABLE, TO_LOG_END, FetchIsolation, NotedFetch,
    Partition, ReplicaOffsets, partition_append, partition_append_as_follower,
    partition_apply_retention, partition_begin_epoch, partition_delete_records, partition_flush,
    partition_follow_bounds, partition_lock, partition_low_watermark_locked, partition_lower,
    partition_new, partition_note_fetch, partition_read, partition_readable_bytes_locked,
    partition_release, partition_set_leadership, partition_unlock)

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine._results import AppendResult
from kbroker.replica import offset_lookup

cdef enum:
    LATEST_PRODUCE_VERSION = 13
    LOOK_NS_MAX = 20000000        # for the lock of a log, in a look at thousands


cdef str text_of(const char* message):
    return message.decode("ascii") if message != NULL else ""


cdef object _timed(int16_t error, const TimedOffset* found):
    if error:
        raise KafkaError(ErrorCode(error), "the log cannot be searched")
    if found.offset < 0:
        return None
    return found.offset, found.timestamp_ms, found.leader_epoch, bool(found.needs_python)


cdef Bound _high_watermark(Partition* partition) noexcept nogil:
    cdef Bound bound
    partition_lock(partition)
    bound = partition.high_watermark
    partition_unlock(partition)
    return bound


cdef int _begin_epoch(Replica replica, int32_t leader_epoch, int64_t until_ns) except -1:
    # At the log's end, where nothing of an earlier epoch comes meanwhile. 0: not until then.
    cdef int begun
    cdef double wait_s = -1
    if leader_epoch <= replica.log.epochs.latest:
        return 1
    with nogil:
        begun = partition_begin_epoch(replica.partition, 1, until_ns)
    if not begun:
        return 0
    if until_ns != NEVER_GIVES_UP:
        wait_s = max(0.0, (until_ns - lock_now_ns()) / 1e9)
    try:
        return replica.log.epochs.assign(leader_epoch, replica.log_end_offset, wait_s)
    except BaseException:
        with nogil:
            partition_begin_epoch(replica.partition, 0, NEVER_GIVES_UP)
        raise


cdef class Replica:
    """This broker's replica of one partition. See the module."""

    def __cinit__(self, LocalLog log not None):
        cdef bytes ident = log.topic_id.bytes
        cdef const uint8_t* topic_id = <const uint8_t*>PyBytes_AsString(ident)
        self.log = log
        with nogil:
            self.partition = partition_new(log.storage, log.index, topic_id)
        if self.partition == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.partition != NULL:
            partition_release(self.partition)

    # --- Leadership -------------------------------------------------------------------------------

    def set_leadership(
        self, int32_t leader_id, bint is_leader, int32_t leader_epoch, int32_t in_sync_count,
        dict followers = None, object broker_epochs = None, *, int64_t wait_ns = NEVER_GIVES_UP,
    ) -> bool:
        """Who leads, in which epoch, and how many replicas are in sync with it, itself among them.

        `followers` of a leader: brokers that have a replica, each with whether the high watermark
        waits for it. `broker_epochs`: of the registered brokers. A leader's epoch begins at the
        log's end, after the write that is under way. OSError: it cannot be noted. A new leader
        flushes first, as the high watermark waits for that, or leaves it to `flush_due`.

        With `wait_ns` the log is waited for so long at most. False: it did not come, and this is to
        be said again; who is to lead in another epoch appends nothing until then.
        """
        cdef int begins = is_leader and not self.partition.is_leader
        cdef int32_t count = <int32_t>len(followers) if is_leader and followers else 0
        cdef int64_t until_ns = NEVER_GIVES_UP if wait_ns < 0 else lock_now_ns() + wait_ns
        cdef Follower* fresh = NULL
        cdef int is_set
        epochs = broker_epochs or {}
        if is_leader and not _begin_epoch(self, leader_epoch, until_ns):
            return False
        if count:
            fresh = <Follower*>calloc(<size_t>count, sizeof(Follower))
            if fresh == NULL:
                raise MemoryError
            for at, (broker_id, in_sync) in enumerate(followers.items()):
                fresh[<int32_t>at].broker_id = broker_id
                fresh[<int32_t>at].in_sync = bool(in_sync)
                fresh[<int32_t>at].registered_epoch = epochs.get(broker_id, -1)
        with nogil:
            is_set = partition_set_leadership(
                self.partition, leader_id, is_leader, leader_epoch, in_sync_count, fresh, count,
                until_ns)
            if is_set and begins and wait_ns < 0 and kb_load_int(&self.partition.log.flush_due):
                # If it fails the log is offline, or the next append tries again.
                partition_flush(self.partition, FLUSH_RECORDS, NULL)
        if not is_set:
            free(fresh)
        return bool(is_set)

    @property
    def flush_is_due(self) -> bool:
        """Whether the high watermark waits for a flush; see `flush_if_due`."""
        return bool(kb_load_int(&self.partition.log.flush_due))

    def throttle(self, bint throttled) -> None:
        """Whether followers out of sync share the leader's rate for the records of it."""
        kb_store_int(&self.partition.throttled, throttled)

    def set_high_watermark(self, int64_t offset) -> None:
        """Moves the high watermark to a batch's start; beyond the log's end it stops there."""
        cdef int16_t error
        with nogil:
            error = partition_set_high_watermark(self.partition, offset)
        if error:
            raise KafkaError(ErrorCode(error), "the log cannot be read")

    def advance(self) -> None:
        """The high watermark, to where it may be by settings that are others now."""
        with nogil:
            partition_lock(self.partition)
            partition_advance_locked(self.partition)
            partition_unlock(self.partition)

    def truncate_to(self, int64_t offset) -> None:
        """Cuts the log as `PartitionLog.truncate_to`; the high watermark is not beyond its end."""
        cdef bint cuts = offset < self.log_end_offset
        self.log.truncate_to(offset, self._falls_to)
        if cuts:
            self._falls_to(0, was_cut=True)

    def begin_again(self, int64_t offset) -> None:
        """Empties the log, which goes on at an offset, as `PartitionLog.begin_again`."""
        self.log.begin_again(offset, self._falls_to)
        self._falls_to(0, was_cut=True)

    def _falls_to(self, int64_t offset, bint was_cut = False):
        # Before the log does, so that no answer gives records as kept while they go. If the new end
        # is below the log's start, the high watermark is at that start until it has moved, too.
        cdef int16_t error
        with nogil:
            error = partition_lower(self.partition, offset, was_cut)
        if error:
            raise KafkaError(ErrorCode(error), "no batch can be read where the log is cut")

    # --- Following and being followed -------------------------------------------------------------

    def append_as_follower(
        self, const uint8_t[::1] data not None, int32_t leader_epoch, int64_t now_ms = -1
    ) -> int:
        """Appends whole batches as the leader of that epoch sent them; where the log ends then.

        A batch that is cut off at the end of `data` is left out. Batches before a fault are
        appended. KafkaError: 2 damage, 1 offsets that the log has, 6, 74 and 75 for another leader
        or epoch, 56 the disk; OSError where a new leader epoch cannot be written down."""
        cdef const uint8_t* bytes_at = &data[0] if data.shape[0] else NULL
        cdef int64_t at = 0, length = data.shape[0]
        cdef Followed found
        if now_ms < 0:
            now_ms = kb_wall_ms()
        while True:
            with nogil:
                partition_append_as_follower(
                    self.partition, bytes_at + at, length - at, leader_epoch, now_ms, &found)
            at += found.appended_bytes
            if found.error:
                raise KafkaError(ErrorCode(found.error), text_of(found.message))
            if found.new_epoch >= 0:
                self.log.epochs.assign(found.new_epoch, found.new_epoch_offset)
            elif found.begin_again_at >= 0:
                self.begin_again(found.begin_again_at)
            else:
                return self.log_end_offset

    def follow_bounds(
        self, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset
    ) -> None:
        """The leader's high watermark and log start, as its answer has them; never back."""
        cdef int16_t error
        with nogil:
            error = partition_follow_bounds(
                self.partition, leader_epoch, high_watermark, log_start_offset)
        if error:
            raise KafkaError(ErrorCode(error))

    def note_fetch(
        self, int32_t broker_id, int64_t offset, int64_t now_ns, *, int64_t broker_epoch = -1,
        int32_t leader_epoch = -1, int64_t log_start_offset = -1,
    ) -> None:
        """A follower has fetched from an offset, so it has all below; the high watermark follows.

        KafkaError, and nothing is noted: 6 where this broker does not lead, for an older start of
        the follower, or a newer one of a follower in sync; 74 and 75 for another leader epoch; 6
        or 75 for a broker without a replica; 1 where the log has no such offset."""
        cdef NotedFetch fetch
        cdef int16_t error
        fetch.broker_id = broker_id
        fetch.broker_epoch = broker_epoch
        fetch.leader_epoch = leader_epoch
        fetch.offset = offset
        fetch.log_start_offset = log_start_offset
        fetch.now_ns = now_ns
        with nogil:
            error = partition_note_fetch(self.partition, &fetch)
        if error:
            raise KafkaError(ErrorCode(error), f"broker {broker_id}")

    def followers(self) -> list:
        """(broker id, whether the high watermark waits for it, log end offset or -1, when it last
        had everything, when it last fetched, its broker epoch or -1), times in nanoseconds or 0
        for never. BlockingIOError where the log's lock is held for long."""
        cdef Follower* copies = NULL
        cdef int32_t count = 0, at
        cdef int locked
        with nogil:
            locked = lock_log_until(self.partition.log, lock_now_ns() + LOOK_NS_MAX, 0)
            if locked:
                count = self.partition.followers.count
                if count:
                    copies = <Follower*>malloc(<size_t>count * sizeof(Follower))
                if copies != NULL:
                    memcpy(copies, self.partition.followers.list, <size_t>count * sizeof(Follower))
                partition_unlock(self.partition)
        if not locked:
            raise BlockingIOError(f"the log of {self.name} is being changed")
        if count and copies == NULL:
            raise MemoryError
        found = [
            (copies[at].broker_id, bool(copies[at].in_sync), copies[at].log_end_offset,
             copies[at].caught_up_ns, copies[at].fetched_ns, copies[at].broker_epoch)
            for at in range(count)
        ]
        free(copies)
        return found

    def followers_keep_up(self, int64_t since_ns) -> bool:
        """Whether the high watermark waits for every follower, and each has all that there is, or
        had it at that time or later. Thousands of partitions are asked this ten times a second: one
        whose lock is held says yes, and is asked again soon."""
        cdef int keep_up = 1
        with nogil:
            if lock_log_until(self.partition.log, 0, 0):
                keep_up = followers_keep_up(
                    &self.partition.followers, self.partition.log.log_end_offset, since_ns)
                partition_unlock(self.partition)
        return bool(keep_up)

    # --- Appending and reading --------------------------------------------------------------------

    def append(
        self, batch: bytes, *, int acks = 1, int64_t now_ms = -1, bint prechecked = False,
        int api_version = LATEST_PRODUCE_VERSION, int64_t guard = 0,
    ) -> AppendResult:
        """Appends one record batch as a produce would, or raises what the produce would answer."""
        result = self.append_group(
            [batch], acks=acks, now_ms=now_ms, prechecked=prechecked, api_version=api_version,
            guard=guard)[0]
        if result.error:
            raise KafkaError(ErrorCode(result.error), result.error_message)
        return result

    def append_group(
        self, batches: list, *, int acks = 1, int64_t now_ms = -1, bint prechecked = False,
        int api_version = LATEST_PRODUCE_VERSION, int64_t guard = 0,
    ) -> list:
        """Appends several batches as the group of one run. The bytes are copied first. `guard`: of
        `begin_verification`, for those that begin a transaction; -1: none is needed."""
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
                memcpy(place, PyBytes_AsString(source), <size_t>len(source))
                group[at].data = place
                group[at].length_bytes = <uint32_t>len(source)
                group[at].acks = acks
                group[at].api_version = api_version
                group[at].prechecked = prechecked
                group[at].guard = guard
                group[at].next = &group[at + 1] if at + 1 < count else NULL
                place += len(source)
            with nogil:
                if now_ms < 0:
                    now_ms = kb_wall_ms()
                for at in range(count):
                    verdict |= log_validate(self.partition.log, &group[at], now_ms)
                    if group[at].error == 0:
                        batch_put_time(&group[at])
                if verdict == 0 and count:
                    partition_append(self.partition, group, now_ms)
                    if kb_load_int(&self.partition.log.flush_due):
                        status = partition_flush(self.partition, FLUSH_RECORDS, NULL)
            if status:
                raise OSError(status, os.strerror(status), self.log.directory)
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

    def begin_verification(
        self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, *,
        bint bumps_epoch,
    ) -> tuple:
        """Before the first batch of a transaction: (NONE, guard), with which it is to be appended
        when its coordinator has said that this partition is in the transaction, and then to be
        `end_verification`; (NONE, 0) where the transaction is open here; or an error and 0.
        `bumps_epoch`: each of the producer's transactions has an epoch of its own."""
        cdef Batch batch
        cdef int64_t guard = 0
        cdef int verdict
        memset(&batch, 0, sizeof(Batch))
        batch.producer_id = producer_id
        batch.producer_epoch = producer_epoch
        batch.base_sequence = base_sequence
        batch.record_count = 1
        batch.api_version = LATEST_PRODUCE_VERSION if bumps_epoch else 0
        with nogil:
            partition_lock(self.partition)
            verdict = transaction_check_locked(self.partition.log, &batch, &guard)
            partition_unlock(self.partition)
        if verdict > 0:
            return ErrorCode(verdict), 0
        return ErrorCode.NONE, guard

    def end_verification(self, int64_t producer_id, int64_t guard, *, bint refused) -> None:
        """The batch of that guard was appended, or will not be. `refused`: it will not come again
        either."""
        with nogil:
            partition_lock(self.partition)
            guards_let_go(&self.partition.log.producers.guards, producer_id, guard, refused)
            partition_unlock(self.partition)

    def append_marker(
        self, int64_t producer_id, int16_t producer_epoch, int32_t coordinator_epoch, *,
        bint committed, int transaction_version, int64_t now_ms = -1, int64_t run = 0,
        int64_t number = 0,
    ):
        """Appends the control batch that ends a producer's transaction, as with acks=-1; who
        answers for it waits for the followers. The error is that of the append: 47 for the
        producer's epoch, 52 for the coordinator's, 46 for a late copy, 7, 6, 19, 56."""
        cdef Marker marker = Marker(
            coordinator_epoch, <int16_t>transaction_version, committed, -1, -1, run, number)
        return marker_append(self.partition, producer_id, producer_epoch, &marker, now_ms)

    def read(
        self, int64_t offset, int64_t max_bytes = 1 << 20, *, bint whole_first = True,
        bint read_committed = False, bint to_log_end = False,
    ) -> bytes:
        """The bytes that a fetch would get; `to_log_end`: a follower's."""
        slice = self.borrow(
            offset, max_bytes, whole_first=whole_first, read_committed=read_committed,
            to_log_end=to_log_end)
        try:
            return slice.read()
        finally:
            slice.release()

    def borrow(
        self, int64_t offset, int64_t max_bytes = 1 << 20, *, bint whole_first = True,
        bint read_committed = False, bint to_log_end = False,
    ) -> Slice:
        """Where a fetch would read, as a slice that keeps its file open."""
        cdef Slice slice = Slice()
        cdef ReplicaOffsets _offsets
        cdef int16_t error
        cdef FetchIsolation isolation = TO_LAST_STABLE if read_committed else TO_HIGH_WATERMARK
        if to_log_end:
            isolation = TO_LOG_END
        with nogil:
            error = partition_read(
                self.partition, offset, max_bytes, whole_first, isolation, FROM_LEADER,
                WAITS_FOR_DISK, &slice.piece, &_offsets)
        if error:
            raise KafkaError(ErrorCode(error), f"offset {offset}")
        return slice

    def find_by_time(self, int64_t timestamp_ms, int64_t from_offset = 0) -> tuple:
        """(offset, timestamp, leader epoch, whether Python has to look into that batch) or None.

        The first record at or after `from_offset`, below the high watermark, not older.
        """
        cdef TimedOffset found
        cdef Bound bound
        cdef int16_t error
        with nogil:
            bound = _high_watermark(self.partition)
            error = log_find_by_time(
                self.partition.log, &bound, timestamp_ms, from_offset, &found)
        return _timed(error, &found)

    def find_max_timestamp(self) -> tuple:
        """The same for the first record with the largest timestamp."""
        cdef TimedOffset found
        cdef Bound bound
        cdef int16_t error
        with nogil:
            bound = _high_watermark(self.partition)
            error = log_find_max_timestamp(self.partition.log, &bound, &found)
        return _timed(error, &found)

    def readable_bytes(
        self, int64_t offset, int64_t max_bytes = 1 << 20, *, bint read_committed=False
    ) -> int:
        """What a waiting fetch asks after each append."""
        cdef FetchIsolation isolation = TO_LAST_STABLE if read_committed else TO_HIGH_WATERMARK
        cdef int64_t found
        with nogil:
            partition_lock(self.partition)
            found = partition_readable_bytes_locked(
                self.partition, offset, max_bytes, isolation, FROM_LEADER)
            partition_unlock(self.partition)
        return found

    def offset_for_time(self, int64_t timestamp_ms) -> tuple:
        """(offset, timestamp, leader epoch) of the first record not older, below the watermark."""
        return offset_lookup.offset_for_time(self, timestamp_ms)

    def offset_of_max_timestamp(self) -> tuple:
        """The same for the first record with the largest timestamp; None if there are none."""
        return offset_lookup.offset_of_max_timestamp(self)

    def delete_records(self, int64_t offset) -> int:
        """Moves the log's start to an offset, -1 to the high watermark; where it is then.

        It never moves back: an offset below it changes nothing. KafkaError beyond the high
        watermark, and where the partition is not led or the log not readable here.
        """
        cdef int64_t start = -1
        cdef int16_t error
        with nogil:
            error = partition_delete_records(self.partition, offset, &start)
        if error:
            raise KafkaError(ErrorCode(error))
        return start

    @property
    def low_watermark(self) -> int:
        """Below it no live replica has records; -1: one has not said it yet, or another broker
        leads: followers are known to the leader alone."""
        cdef int64_t low = -1
        with nogil:
            partition_lock(self.partition)
            if self.partition.is_leader:
                low = partition_low_watermark_locked(self.partition)
            partition_unlock(self.partition)
        return low

    @property
    def deletions_wait(self) -> bool:
        """Whether a deletion of records waits for the low watermark."""
        return self.partition.waiting_deletions.first != NULL

    def apply_retention(self, int64_t age_ms, int64_t size_bytes, int64_t now_ms) -> int:
        """Moves the log's start to where these have it begin; where it is then, -1: as it was.

        Below 0 either sets no bound. As leader or not; nothing at or above the high watermark goes.
        """
        cdef Retention retention
        cdef int64_t start = -1
        cdef int moved
        retention.age_ms = age_ms
        retention.size_bytes = size_bytes
        with nogil:
            moved = partition_apply_retention(self.partition, &retention, now_ms, &start)
        return start if moved else -1

    def flush_if_due(self) -> None:
        """The flush that `flush.messages` requires after an append; nothing is answered before.

        The high watermark follows. OSError: a write is lost, and the log offline.
        """
        cdef int status
        if not kb_load_int(&self.partition.log.flush_due):
            return
        with nogil:
            status = partition_flush(self.partition, FLUSH_RECORDS, NULL)
        if status:
            raise OSError(status, os.strerror(status), self.log.directory)

    def statistics(self) -> dict:
        """The counters and sizes of its log, with the high watermark."""
        return {**self.log.statistics(), "high_watermark": self.high_watermark}

    # --- Numbers ----------------------------------------------------------------------------------

    @property
    def name(self):
        """Topic and partition."""
        return self.log.name

    @property
    def topic_id(self):
        return self.log.topic_id

    @property
    def epochs(self):
        return self.log.epochs

    def encode_producers(self) -> tuple:
        """How many producers the log knows, and they as DescribeProducers v0 carries them."""
        return self.log.encode_producers()

    @property
    def log_start_offset(self) -> int:
        return kb_load_i64(&self.partition.log.log_start_offset)

    @property
    def log_end_offset(self) -> int:
        return kb_load_i64(&self.partition.log.log_end_offset)

    @property
    def high_watermark(self) -> int:
        return kb_load_i64(&self.partition.high_watermark.offset)

    @property
    def last_stable_offset(self) -> int:
        return kb_load_i64(&self.partition.last_stable.offset)

    @property
    def leader_epoch(self) -> int:
        return kb_load_int(&self.partition.leader_epoch)

    @property
    def has_watchers(self) -> bool:
        """Whether a fetch or a produce waits for it: a caller that moves it has to wake them."""
        return bool(kb_load_int(&self.partition.has_watchers))

    @property
    def online(self) -> bool:
        return bool(kb_load_int(&self.partition.log.online))

    @property
    def writing_ms(self) -> int:
        cdef int64_t since_ns = kb_load_i64(&self.partition.log.writing_since_ns)
        return 0 if since_ns == 0 else max(<int64_t>0, kb_now_ns() - since_ns) // 1000000
