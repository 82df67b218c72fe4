# cython: language_level=3
"""Violations of invariants, made on purpose, as a bug of the compiled core could make them.

`plant` writes one wrong value into a structure of a broker that is idle; a client's next request
meets it. Tests prove with it that `require` stops each of them before a wrong
byte reaches a socket or a file. `HeldTurn` keeps a network thread from its work, so that an answer
can be spoiled between the handler that has built it and the thread that is to send it.

A test's process only, which ends after it: the broker never imports this.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from kbroker.coordinator.group._members cimport (
    member_new, members_clear_locked, members_replace_locked)
from kbroker.coordinator.group._shards cimport (
    group_remove_locked, group_shard_clear_locked, group_take_locked)
from kbroker.coordinator.group._structs cimport Group, GroupShard, Member
from kbroker.core._live_objects cimport LIVE_LOGS, live_add
from kbroker.core._lock_order cimport RANK_QUEUE, RANK_TURN, lock_ranked, unlock_ranked
from kbroker._net cimport SocketServer
from kbroker.log.engine._segment cimport part_of
from kbroker.log.engine._storage cimport (
    RECENT_BATCHES, Log, active_of, begin_writing_locked, lock_to_look, log_acquire,
    log_replace_segments)
from kbroker.log.engine._types cimport Batch, Segment
from kbroker.log.upkeep._trim cimport log_drop_first_locked, log_move_start_locked
from kbroker.net._aside cimport aside_take
from kbroker.net._in_python cimport python_leave
from kbroker.net._sleep cimport wake_processor
from kbroker.net._types cimport (
    ACTION_NONE, AsideRequests, Channel, Handler, Part, Processor, Request)
from kbroker.net._unsent cimport unsent_add, unsent_remove
from kbroker.replica._fetch_session cimport FetchSession
from kbroker.replica._partition cimport Partition, partition_append
from kbroker.replica._replica cimport Replica
from kbroker.engine.worker._context cimport PARKED_BUCKETS, ParkedRequest, ParkedWatch
from kbroker.engine._hot cimport HotPath

from kbroker.core._live_objects import live_counts

cdef Request _never_queued


cdef class HeldTurn:
    """The first network thread of a server waits meanwhile, before its next turn."""

    cdef SocketServer server

    def __init__(self, SocketServer server not None):
        self.server = server

    def __enter__(self):
        cdef Processor* processor = self.server.processors[0]
        with nogil:
            lock_ranked(&processor.turn, RANK_TURN)
        return self

    def __exit__(self, *raised):
        cdef Processor* processor = self.server.processors[0]
        with nogil:
            unlock_ranked(&processor.turn, RANK_TURN)
            wake_processor(processor)

    def has_answers(self) -> bool:
        """Whether a handler has handed it one."""
        cdef Processor* processor = self.server.processors[0]
        cdef int has_some
        with nogil:
            lock_ranked(&processor.lock, RANK_QUEUE)
            has_some = processor.answers_head != NULL
            unlock_ranked(&processor.lock, RANK_QUEUE)
        return bool(has_some)

    def has_notices(self) -> bool:
        """Whether it has not been notified yet of a request that waits."""
        cdef Processor* processor = self.server.processors[0]
        cdef int has_some
        with nogil:
            lock_ranked(&processor.lock, RANK_QUEUE)
            has_some = processor.local_head != NULL
            unlock_ranked(&processor.lock, RANK_QUEUE)
        return bool(has_some)


def has_handler_asleep(HotPath hot not None) -> bool:
    """Whether the first handler has ended its last run, which may write over what is planted."""
    cdef int sleeps
    with nogil:
        lock_ranked(&hot.context.request_channel.lock, RANK_QUEUE)
        sleeps = hot.workers[0].handler.asleep
        unlock_ranked(&hot.context.request_channel.lock, RANK_QUEUE)
    return bool(sleeps)


cdef class _Place:
    # Where a plant finds what it spoils.
    cdef HotPath hot
    cdef Partition* partition
    cdef Log* log
    cdef Processor* processor
    cdef Channel* channel         # of the newest connection, or NULL
    cdef Request* answer          # the first that waits to be sent, or NULL

    cdef ParkedRequest* parked(self) except NULL:
        return <ParkedRequest*>self.channel.parked

    cdef ParkedWatch* watch(self) except NULL:
        return <ParkedWatch*>self.partition.waiting_fetches.first

    cdef FetchSession* session(self) except NULL:
        return self.hot.context.sessions.newest


# --- A partition ----------------------------------------------------------------------------------

def _end_before_segment(_Place place):
    place.log.log_start_offset = place.log.log_end_offset = -1


def _start_beyond_end(_Place place):
    place.log.log_start_offset = place.log.log_end_offset + 1


def _recovery_point_beyond_end(_Place place):
    place.log.recovery_point = place.log.log_end_offset + 1


def _settled_beyond_end(_Place place):
    place.log.settled_offset = place.log.log_end_offset + 1


def _segment_closed(_Place place):
    active_of(place.log).fd = -1


def _segment_size_negative(_Place place):
    active_of(place.log).size_bytes = -1


def _segment_not_held(_Place place):
    active_of(place.log).refs = 0


def _segments_beyond_room(_Place place):
    place.log.segment_max = 0


def _recent_beyond_ring(_Place place):
    place.log.recent_count = RECENT_BATCHES + 1


def _high_watermark_beyond_end(_Place place):
    place.partition.high_watermark.offset = place.log.log_end_offset + 1


def _last_stable_beyond_high_watermark(_Place place):
    place.partition.last_stable.offset = place.partition.high_watermark.offset + 1


def _follower_ahead(_Place place):
    # A flush that is due lets the high watermark go to the recovery point.
    place.log.flush_due = 1
    place.log.recovery_point = place.log.log_end_offset + 1


def _start_moves_beyond_end(_Place place):
    log_move_start_locked(place.log, place.log.log_end_offset + 1)


def _segments_replaced_beyond_end(_Place place):
    _must_be(log_replace_segments(place.log, 7, 1, active_of(place.log)), 0)


def _every_segment_dropped(_Place place):
    cdef Segment* dropped
    _must_be(log_drop_first_locked(place.log, place.log.segment_count, &dropped), 0)


def _offset_entry_before_map(_Place place):
    # The next batch is to have an entry.
    part_of(active_of(place.log)).bytes_since_entry = 1 << 30
    part_of(active_of(place.log)).offsets.entries = -1


def _time_entry_before_map(_Place place):
    part_of(active_of(place.log)).bytes_since_entry = 1 << 30
    part_of(active_of(place.log)).times.entries = -1


def _slice_before_file(_Place place):
    place.log.recent[place.log.recent_first].position = -1


def _recent_batch_longer_than_its_file(_Place place):
    # A fetch of few bytes is to get a batch whole.
    place.log.recent[place.log.recent_first].size_bytes = 1 << 20


cdef _append_with(_Place place, int64_t length, int32_t records, int without_data, uint8_t magic):
    # A batch of one record as validation leaves it, but for one thing.
    cdef uint8_t data[100]
    cdef Batch batch
    memset(data, 0, sizeof(data))
    memset(&batch, 0, sizeof(Batch))
    data[11] = 88                 # its length, without the first 12 bytes
    data[16] = magic
    batch.data = NULL if without_data else data
    batch.length_bytes = <unsigned int>length
    batch.record_count = records
    batch.acks = 1
    batch.producer_id = -1
    batch.base_offset = -1
    with nogil:
        partition_append(place.partition, &batch, 1)
    if batch.error != 56:
        raise ValueError(f"error {batch.error}")


def _batch_longer_than_its_header(_Place place):
    _append_with(place, 99, 1, 0, 2)


def _batch_without_header(_Place place):
    _append_with(place, 60, 1, 0, 2)


def _batch_without_data(_Place place):
    _append_with(place, 100, 1, 1, 2)


def _batch_with_other_offsets(_Place place):
    _append_with(place, 100, 2, 0, 2)


def _batch_of_other_format(_Place place):
    _append_with(place, 100, 1, 0, 1)


# --- A connection ---------------------------------------------------------------------------------

def _answer_shorter(_Place place):
    place.answer.parts[place.answer.part_count - 1].length -= 1


def _answer_longer(_Place place):
    place.answer.parts[place.answer.part_count - 1].length += 1


def _answer_size_wrong(_Place place):
    place.answer.parts[0].data[3] ^= 1


def _answer_without_bytes(_Place place):
    place.answer.parts[0].data = NULL


cdef _add_part(_Place place, int fd, int64_t position):
    # One more piece, without a byte: the answer is as long as before.
    cdef Part* part = &place.answer.parts[place.answer.part_count]
    _must_be(place.answer.compact, 0)
    _must_be(place.answer.part_count, 1)
    memset(part, 0, sizeof(Part))
    part.fd = fd
    part.position = position
    place.answer.part_count = 2


def _answer_piece_lost(_Place place):
    _add_part(place, -1, 0)


def _answer_range_before_file(_Place place):
    _add_part(place, 0, -1)


def _answer_of_no_request(_Place place):
    place.answer.request_id = 1 << 40


def _answer_sent_in_part(_Place place):
    place.answer.part_next = 1


def _answer_to_no_frame(_Place place):
    place.answer.frames = 0


def _answer_without_action(_Place place):
    place.answer.action = ACTION_NONE


def _slot_of_another(_Place place):
    place.channel.slots.ring[place.channel.slots.head].request_id += 1


def _state_without_request(_Place place):
    place.channel.state = 0       # NOT_MUTED


def _cached_frames_forgotten(_Place place):
    place.channel.cached_frames = 0


def _received_beyond_chunk(_Place place):
    place.channel.rx_end = place.channel.rx.capacity_bytes + 1


# --- The process ----------------------------------------------------------------------------------

def _answer_of_another_processor(_Place place):
    place.answer.processor = NULL


def _in_flight_forgotten(_Place place):
    place.channel.in_flight = 0


def _slots_head_beyond_ring(_Place place):
    place.channel.slots.head = place.channel.slots.capacity


def _slots_more_than_ring(_Place place):
    place.channel.slots.count = place.channel.slots.capacity + 1


def _oldest_channel_lost(_Place place):
    place.processor.oldest = NULL


def _newest_channel_lost(_Place place):
    place.processor.newest = NULL


def _shared_chunk_not_held(_Place place):
    place.processor.shared.refs = 0


def _queue_without_end(_Place place):
    # Of the last request that was queued, which has long been freed, the queue still knows.
    place.processor.request_channel.tail = &_never_queued
    _never_queued.next = &_never_queued


def _ready_channel_that_is_not(_Place place):
    place.processor.ready_head = place.channel


def _requests_forgotten(_Place place):
    place.processor.live_requests = -1


def _free_requests_forgotten(_Place place):
    place.processor.free_count = 0


def _parked_not_held(_Place place):
    place.parked().refs = 0


def _parked_in_no_state(_Place place):
    place.parked().state = 7


def _deadlines_lost(_Place place):
    cdef int at
    for at in range(PARKED_BUCKETS):
        place.hot.context.parked.buckets[at] = NULL


def _deadline_of_itself(_Place place):
    place.parked().next = place.parked()


def _channels_parked_lost(_Place place):
    place.channel.parked = NULL


def _watches_first_lost(_Place place):
    place.watch()
    place.partition.waiting_fetches.first = NULL


def _watches_last_lost(_Place place):
    place.partition.waiting_fetches.last = NULL


def _watch_before_itself(_Place place):
    place.watch().previous = place.watch()


def _watch_after_itself(_Place place):
    place.watch().next = place.watch()


def _consumers_forgotten(_Place place):
    place.partition.consumers_waiting = 0


def _session_not_held(_Place place):
    place.session().refs = 0


def _oldest_session_lost(_Place place):
    place.hot.context.sessions.oldest = NULL


def _session_partitions_forgotten(_Place place):
    place.session().followed.count = 0


def _reader_inside(_Place place):
    place.hot.workers[0].reader.epoch = 1


def _arena_overfull(_Place place):
    place.hot.workers[0].arena.block.used = place.hot.workers[0].arena.block.capacity + 1


def _segment_read_not_held(_Place place):
    active_of(place.log).refs = 0


def _partition_not_held(_Place place):
    place.partition.refs = 0


def _log_not_held(_Place place):
    place.log.refs = 0
    log_acquire(place.log)


def _second_writer(_Place place):
    with nogil:
        lock_to_look(place.log)
        place.log.writing_since_ns = 1
        begin_writing_locked(place.log, 0)


# --- A count: corrected, and nothing ends ---------------------------------------------------------

def _live_objects_forgotten(_Place place):
    live_add(LIVE_LOGS, -1000)
    _must_be(live_counts()["logs"], 0)


def _connections_quota_forgotten(_Place place):
    place.hot.server.quotas.total = 0


def _parked_forgotten(_Place place):
    place.hot.context.parked.count = 0


def _parked_writes_forgotten(_Place place):
    place.hot.context.parked.produce_count = 0


def _slots_bytes_forgotten(_Place place):
    place.channel.slots.bytes = 0


def _waiting_handler_forgotten(_Place place):
    place.hot.workers[0].handler.relieved = 1


def _handler_in_python_forgotten(_Place place):
    cdef Handler handler
    memset(&handler, 0, sizeof(Handler))
    handler.in_python = 1
    python_leave(&place.hot.context.request_channel.python, &handler)


def _unsent_bytes_forgotten(_Place place):
    cdef Request request
    memset(&request, 0, sizeof(Request))
    request.own_bytes = 100
    unsent_remove(place.channel, &request)
    _must_be(place.channel.unsent_bytes, 0)
    _must_be(place.processor.settings.unsent_total, 0)


def _unsent_bytes_of_all_forgotten(_Place place):
    cdef Request request
    memset(&request, 0, sizeof(Request))
    request.own_bytes = 100
    place.processor.settings.unsent_total = -30
    unsent_add(place.channel, &request)
    _must_be(place.channel.unsent_bytes, 100)
    _must_be(place.processor.settings.unsent_total, 100)
    unsent_remove(place.channel, &request)


cdef _take_aside_with(int64_t count, int64_t total_bytes):
    # One request of ten bytes, counted so.
    cdef AsideRequests aside
    cdef Request request
    cdef Request* taken
    memset(&aside, 0, sizeof(AsideRequests))
    memset(&request, 0, sizeof(Request))
    request.frames = 1
    request.total_bytes = 10
    aside.head = aside.tail = &request
    aside.count = count
    aside.bytes = total_bytes
    _must_be(aside_take(&aside, NULL, &taken, 1, 100), 1)
    _must_be(aside.count, 0)
    _must_be(aside.bytes, 0)


def _aside_forgotten(_Place place):
    _take_aside_with(0, 10)


def _aside_bytes_forgotten(_Place place):
    _take_aside_with(1, 0)


cdef class _TwoGroups:
    # A shard with two groups of one member each.
    cdef GroupShard shard
    cdef Group* first

    def __cinit__(self):
        cdef Group* group
        cdef Member* member
        memset(&self.shard, 0, sizeof(GroupShard))
        for name in (b"first", b"second"):
            group = group_take_locked(&self.shard, <const uint8_t*><char*>name, <int32_t>len(name))
            member = member_new(b"m", 1, NULL, -1)
            members_replace_locked(&self.shard, group, &member, 1)
            if name == b"first":
                self.first = group

    def __dealloc__(self):
        group_shard_clear_locked(&self.shard.base)


def _groups_forgotten(_Place place):
    cdef _TwoGroups groups = _TwoGroups()
    groups.shard.count = 0
    group_remove_locked(&groups.shard, groups.first)
    _must_be(groups.shard.count, 1)


def _groups_bytes_forgotten(_Place place):
    cdef _TwoGroups groups = _TwoGroups()
    groups.shard.bytes = 0
    group_remove_locked(&groups.shard, groups.first)
    _must_be(groups.shard.bytes, 0)


def _groups_offsets_forgotten(_Place place):
    cdef _TwoGroups groups = _TwoGroups()
    groups.first.offset_count = 1
    group_remove_locked(&groups.shard, groups.first)
    _must_be(groups.shard.offset_count, 0)


def _members_bytes_forgotten(_Place place):
    cdef _TwoGroups groups = _TwoGroups()
    groups.shard.bytes = 0
    members_clear_locked(&groups.shard, groups.first)
    _must_be(groups.shard.bytes, 0)


cdef int _must_be(int64_t found, int64_t wanted) except -1:
    if found != wanted:
        raise ValueError(f"{found} instead of {wanted}")
    return 0


_MADE = {
    name[1:]: made
    for name, made in list(globals().items())
    if name.startswith("_") and not name.startswith(("__", "_Place", "_TwoGroups"))
}
PLANTS = tuple(_MADE)


def plant(str name not None, HotPath hot not None, Replica replica not None) -> None:
    """Makes one of PLANTS, in the first network thread, the first handler or the replica."""
    cdef _Place place = _Place()
    place.hot = hot
    place.partition = replica.partition
    place.log = replica.partition.log
    place.processor = hot.server.processors[0]
    place.channel = place.processor.newest
    place.answer = place.processor.answers_head
    _MADE[name](place)
