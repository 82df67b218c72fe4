# cython: language_level=3
"""The partitions of a fetch's answer, taken in: most of them in one call of Python's for all.

`Taking` walks over an answer. A partition with records, or none, of which there is nothing else to
say is appended to, follows the leader's bounds and gets the position that the next request names,
without an object of Python's for any of that. `next` returns at a partition of which there is more
to say: an error, a divergence, a log that is empty, that is being changed or that is elsewhere by
now. `fetcher_partition.py` takes that one in: it does the same, and decides the rest.

An append and what follows from it hold the partition's lock and count as a change, as there.

The request after it is as often of one kind: in a session, it names what has changed, and there is
something to forget in few. `usual_request` writes it.

Owner: the fetchers' loop. The GIL is given away while a log is appended to.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from kbroker.core._atomics cimport kb_load_i64, kb_load_int
from kbroker.log.engine._append_follower cimport Followed
from kbroker.log.engine._records cimport HEADER_BYTES
from kbroker.log.engine._storage cimport Log
from kbroker.peer._replica_fetch cimport (
    FetchBounds, FetchedPart, FetchedParts, begin_parts, bounds_of, encode_changed, fetched_of,
    malformed, next_part)
from kbroker.protocol._cursor cimport get_i32, kb_put_u32
from kbroker.protocol._wire cimport Reader
from kbroker.replica._partition cimport (
    Partition, partition_append_as_follower, partition_follow_bounds, partition_lock,
    partition_unlock)
from kbroker.replica._replica cimport Replica

from typing import NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.replica_fetch import Asked

cdef enum:
    ID_BYTES = 16
    KEY_BYTES = ID_BYTES + 4
    SIZE_AT = 8                   # of a batch: the bytes that follow its size
    SIZED_BYTES = 12
    FETCH_OFFSET_AT = 3           # of `Asked`
    INITIAL_EPOCH = 0             # of a session, before its full request

cdef bytes _NO_ID = bytes(ID_BYTES)
cdef object _new_tuple = tuple.__new__

TURN_OVER = "turn over"


class Refused(NamedTuple):
    """A partition whose records were not taken: why, or None where there was no whole batch."""

    partition: object
    position: object
    error: object


cdef struct Step:
    # An append and what comes with it.
    Followed appended
    int is_appended               # as far as records came
    int is_bounded                # and the bounds follow
    int16_t error                 # of that
    int64_t end_offset
    int64_t start_offset
    int32_t last_epoch
    int flush_is_due


cdef void _follow(
    Partition* partition, const FetchedPart* part, int32_t leader_epoch, int64_t now_ms, Step* out
) noexcept nogil:
    cdef Followed* appended = &out.appended
    out.is_appended = 0
    out.is_bounded = 0
    out.error = 0
    appended.error = 0
    appended.message = NULL
    appended.appended_bytes = 0
    if part.records_bytes > 0:
        partition_append_as_follower(
            partition, part.records, part.records_bytes, leader_epoch, now_ms, appended)
        if appended.error or appended.new_epoch >= 0 or appended.begin_again_at >= 0:
            return
    out.is_appended = 1
    if part.records_bytes > 0 and kb_load_int(&partition.log.flush_due):
        return
    out.is_bounded = 1
    out.error = partition_follow_bounds(
        partition, leader_epoch, part.high_watermark, part.log_start_offset)
    _look(partition, out)


cdef void _look(Partition* partition, Step* out) noexcept nogil:
    cdef Log* log = partition.log
    partition_lock(partition)
    out.end_offset = log.log_end_offset
    out.start_offset = log.log_start_offset
    out.last_epoch = log.epochs[log.epoch_count - 1].epoch if log.epoch_count else -1
    out.flush_is_due = kb_load_int(&log.flush_due)
    partition_unlock(partition)


cdef bint _has_whole_batch(const FetchedPart* part) noexcept nogil:
    # Or what `append_as_follower` refuses.
    return (part.records_bytes >= HEADER_BYTES
            and part.records_bytes - SIZED_BYTES >= get_i32(part.records + SIZE_AT))


cdef class FollowedState:
    """The state of a `FollowedPartition`, which has its methods and says what it means."""

    cdef public object name
    cdef public object topic_id
    cdef public object replica
    cdef public bytes key
    cdef public int32_t leader_epoch
    cdef public int64_t failures
    cdef public bint offline
    cdef public int64_t leader_high_watermark
    cdef public int64_t changes
    cdef public bint _ended
    cdef public object _lines
    cdef public object _wake
    cdef public object _lock


cdef bint _is_usual(FollowedState state, tuple position, const FetchedPart* part) except -1:
    # Whether it is meant for the log as it is, and the log is not empty.
    cdef Partition* partition
    cdef int64_t end
    if not isinstance(state.replica, Replica):
        return False
    partition = (<Replica>state.replica).partition
    end = kb_load_i64(&partition.log.log_end_offset)
    if (state._ended or kb_load_int(&partition.leader_epoch) != state.leader_epoch
            or <int64_t>position[FETCH_OFFSET_AT] != end):
        return False
    if part.records_bytes <= 0:
        return True
    return kb_load_i64(&partition.log.log_start_offset) < end and _has_whole_batch(part)


cdef class SessionState:
    """The state of a `FetchSession`, which has its methods and says what it means."""

    cdef readonly dict positions  # `Asked` by key
    # Changes that the leader does not have yet, if the next request is not a full one.
    cdef readonly dict changed
    cdef readonly dict forgotten
    cdef public int32_t session_id
    cdef public int32_t epoch
    cdef public list named        # keys of the last request
    cdef public bint is_full      # it was

    def __cinit__(self):
        self.positions, self.changed, self.forgotten, self.named = {}, {}, {}, []


cdef class Taking:
    """The rounds of one lane, one after the other: `begin`, then `next` until it is None."""

    cdef readonly set answered    # keys
    cdef readonly bytes key       # of the part that `next` returned
    cdef readonly int64_t record_bytes
    cdef SessionState _session
    cdef dict _members
    cdef dict _moved
    cdef object _monotonic_ms
    cdef int32_t _replica_id
    cdef FetchBounds _bounds
    cdef int64_t _turn_ms
    cdef Reader _reader
    cdef FetchedParts _parts
    cdef bint _is_one             # partition of the answer
    cdef int64_t _left            # parts of it
    cdef int64_t _turn_ends_ms    # -1: it is to begin

    def __init__(
        self, dict members not None, dict moved not None, SessionState session not None,
        int32_t replica_id, limits, monotonic_ms, int64_t turn_ms,
    ):
        self._members = members
        self._moved = moved
        self._session = session
        self._replica_id = replica_id
        self._bounds = bounds_of(limits)
        self._monotonic_ms = monotonic_ms
        self._turn_ms = turn_ms
        self.answered = set()

    def usual_request(self, int64_t broker_epoch):
        cdef SessionState session = self._session
        if session.epoch == INITIAL_EPOCH or session.forgotten:
            return None
        body = encode_changed(
            self._replica_id, broker_epoch, &self._bounds, session.session_id, session.epoch,
            session.changed)
        session.named, session.is_full = list(session.changed), False
        session.changed.clear()
        return body

    def begin(self, Reader reader not None) -> None:
        cdef FetchedParts walk
        cdef FetchedPart part
        cdef int status = 1
        cdef int64_t count = -1       # the last step finds none
        cdef SessionState session = self._session
        cdef int32_t session_id
        self._reader = None           # an earlier answer may have been left half-way
        session_id = begin_parts(reader, &self._parts)
        walk = self._parts
        with nogil:
            while status > 0:
                status = next_part(&walk, &part)
                count += 1
        if status < 0:
            raise malformed()
        if session.epoch != INITIAL_EPOCH and session_id == session.session_id:
            session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        else:
            session.answered(session_id)
        self._reader = reader
        self._left = count
        self._is_one = count == 1
        self._turn_ends_ms = -1
        self.answered.clear()

    def next(self, bint in_one_call, int64_t now_ms):
        cdef FetchedPart part
        if self._reader is None:
            return None
        while True:
            if self._left == 0:
                self._reader = None  # the frame may be large
                if not self._session.is_full:
                    self._note_left_out()
                return None
            if not self._is_one and self._turn_is_over():
                return TURN_OVER
            self._left -= 1
            next_part(&self._parts, &part)
            found = self._take(&part, in_one_call, now_ms)
            if found is not None:
                return found

    def left_out(self) -> list:
        cdef list found = []
        for key in self._session.named:
            if key not in self.answered:
                partition = self._members.get(key)
                if partition is not None:
                    found.append(partition)
        return found

    cdef int _note_left_out(self) except -1:
        # In a session there is nothing new of them.
        for key in self._session.named:
            if key not in self.answered:
                partition = self._members.get(key)
                if isinstance(partition, FollowedState):
                    (<FollowedState>partition).failures = 0
        return 0

    cdef bint _turn_is_over(self) except -1:
        cdef int64_t now_ms = self._monotonic_ms()
        if self._turn_ends_ms < 0:
            self._turn_ends_ms = now_ms + self._turn_ms
        elif now_ms > self._turn_ends_ms:
            self._turn_ends_ms = -1
            return True
        return False

    cdef object _take(self, const FetchedPart* part, bint in_one_call, int64_t now_ms):
        cdef FollowedState state
        cdef tuple position
        key = _key_of(part)
        if key in self.answered or memcmp(part.topic_id, PyBytes_AsString(_NO_ID), ID_BYTES) == 0:
            return None
        self.answered.add(key)
        self.key = key
        if in_one_call and part.error == 0 and not part.has_tags:
            member, found = self._members.get(key), self._session.positions.get(key)
            if isinstance(member, FollowedState) and found is not None:
                state, position = <FollowedState>member, <tuple>found
                if state._lock.acquire(False):
                    return self._take_locked(state, position, part, now_ms)
        return fetched_of(self._reader, part)

    cdef object _take_locked(
        self, FollowedState state, tuple position, const FetchedPart* part, int64_t now_ms
    ):
        # Gives the lock back.
        cdef Step step
        cdef Partition* partition
        cdef int64_t start_before, watermark_before
        trouble = None
        try:
            if not _is_usual(state, position, part):
                return fetched_of(self._reader, part)
            partition = (<Replica>state.replica).partition
            start_before = kb_load_i64(&partition.log.log_start_offset)
            watermark_before = kb_load_i64(&partition.high_watermark.offset)
            state.changes += 1
            try:
                self._apply(state, part, now_ms, &step)
            except Exception as error:
                trouble = error
            finally:
                state.changes += 1
        finally:
            state._lock.release()
        if kb_load_int(&partition.has_watchers) and (
                kb_load_i64(&partition.log.log_start_offset) != start_before
                or kb_load_i64(&partition.high_watermark.offset) != watermark_before):
            try:
                state._wake(state.replica)
            except Exception as error:
                trouble = trouble or error
        if trouble is not None:
            return Refused(state, position, trouble)
        if part.records_bytes > 0 and step.end_offset <= <int64_t>position[FETCH_OFFSET_AT]:
            return Refused(state, position, None)
        state.failures = 0
        if part.records_bytes > 0:
            self.record_bytes += part.records_bytes
        self._move(state, position, part.records_bytes > 0, &step)
        return None

    cdef int _apply(
        self, FollowedState state, const FetchedPart* part, int64_t now_ms, Step* step
    ) except -1:
        cdef Replica replica = <Replica>state.replica
        cdef Partition* partition = replica.partition
        cdef int32_t epoch = state.leader_epoch
        cdef Py_ssize_t begin
        with nogil:
            _follow(partition, part, epoch, now_ms, step)
        if step.appended.error:
            message = step.appended.message
            raise KafkaError(
                ErrorCode(step.appended.error), message.decode("ascii") if message != NULL else "")
        if not step.is_appended:
            # A leader epoch begins, or the log begins elsewhere: both are written down first.
            begin = part.records - self._reader._begin + step.appended.appended_bytes
            left = memoryview(self._reader._data)[
                begin:part.records - self._reader._begin + part.records_bytes]
            replica.append_as_follower(left, epoch, now_ms)
        if not step.is_bounded:
            replica.flush_if_due()  # before it can lead with records that are not on the disk
        state.leader_high_watermark = part.high_watermark
        if not step.is_bounded:
            with nogil:
                step.error = partition_follow_bounds(
                    partition, epoch, part.high_watermark, part.log_start_offset)
                _look(partition, step)
        if step.error:
            raise KafkaError(ErrorCode(step.error))
        return 0

    cdef int _move(
        self, FollowedState state, tuple position, bint has_records, const Step* step
    ) except -1:
        # The next request names it where it is now; `FollowedPartition.asked` says why so.
        if step.flush_is_due or <int64_t>(<Replica>state.replica).log.start_on_file < (
                step.start_offset):
            self._moved[self.key] = state  # its start has to be written down, or a flush is due
            fresh = position
        else:
            fresh = _new_tuple(Asked, (
                state.topic_id, position[1], state.leader_epoch, step.end_offset, step.last_epoch,
                step.start_offset))
            if fresh != position:
                self._session.changed[self.key] = fresh
        if has_records:
            del self._session.positions[self.key]  # those that were served go to the end
        self._session.positions[self.key] = fresh
        return 0


cdef bytes _key_of(const FetchedPart* part):
    cdef uint8_t key[KEY_BYTES]
    memcpy(key, part.topic_id, ID_BYTES)
    kb_put_u32(key + ID_BYTES, <unsigned int>part.partition)
    return PyBytes_FromStringAndSize(<const char*>key, KEY_BYTES)
