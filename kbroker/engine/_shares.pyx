# cython: language_level=3
"""What the share-partitions of this broker need of the hot path: `HotShares`.

A ShareFetch waits in Python. Three things that it waits for are known in C first: that there are
records at an offset, how far the connection of a share session has ended, and that a handler is
free to go on with it. Each is a parked request without a client (`engine/waiting/_parked`), with
which a handler comes to Python (`HotPath.take_settled`). The first is of a kind that waits for
bytes, as a Fetch does: appends, followers, markers, the log's start and a change of leadership wake
it.

Any thread that has the GIL may call it.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free

from kbroker.core._arena cimport arena_reset
from kbroker.core._list cimport linked_insert
from kbroker.core._lock_order cimport RANK_QUEUE, lock_ranked, unlock_ranked
from kbroker.core._require cimport require_same, take_reference
from kbroker.coordinator.runtime._batches cimport batch_prepare
from kbroker.engine._hot cimport HotPath
from kbroker.engine.apis._group_write cimport GroupWrite, group_write_new
from kbroker.engine.waiting._long_polls cimport long_polls_wake_advanced
from kbroker.engine.waiting._parked cimport (
    parked_complete, parked_drop, parked_hand_over, parked_new, parked_wait)
from kbroker.engine.worker._answers cimport worker_hand_over
from kbroker.engine.worker._context cimport (
    WAITS_FOR_BYTES, HotWorker, ParkedRequest, ParkedTable, WaiterKind)
from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.log.engine._types cimport Batch
from kbroker.net._types cimport Channel
from kbroker.net._wrapped_request cimport WrappedRequest
from kbroker.replica._partition cimport (
    FROM_LEADER, TO_HIGH_WATERMARK, TO_LAST_STABLE, partition_acquire)
from kbroker.replica._replica cimport Replica
from kbroker.replica._snapshot cimport Snapshot, snapshot_enter, snapshot_leave

cdef enum:
    FOR_EVER_MS = 0x7fffffff


cdef WaiterKind _SHARE = WaiterKind(
    waits_for=WAITS_FOR_BYTES, complete=_complete, give_up=NULL, free_kept=free)


cdef void _complete(HotWorker* worker, Snapshot* snapshot, ParkedRequest* parked) noexcept nogil:
    parked_hand_over(worker.context, parked)


cdef int _wait(HotWorker* worker, ParkedRequest* parked) noexcept nogil:
    # Fetches of followers that linger there leave now: the consumer waits for their records.
    cdef int waits = parked_wait(worker, parked)
    if worker.advanced != NULL:
        long_polls_wake_advanced(worker, snapshot_enter(worker.context.registry, worker.reader))
        worker_hand_over(worker)
        snapshot_leave(worker.reader)
    require_same(worker.advanced, NULL, "share: no partition stays with a worker without a thread")
    arena_reset(&worker.arena)
    return waits


@cython.no_gc_clear  # its request points into the hot path, which must not go first
cdef class RecordsWatch:
    """See _shares.pyi."""

    cdef HotPath hot
    cdef ParkedRequest* parked    # a reference; NULL: it never waited

    def __cinit__(self, HotPath hot not None):
        self.hot = hot

    def __dealloc__(self):
        if self.parked != NULL:
            with nogil:           # it may be the last to let go of a log
                parked_drop(self.parked)

    def cancel(self):
        cdef int mine = 0
        with self.hot.own_lock:
            if self.parked != NULL:
                with nogil:
                    mine = parked_complete(&self.parked, 1)
                if mine:
                    del self.hot.awaiting[(<GroupWrite*>self.parked.kept).number]
        return bool(mine)


cdef class HotShares:
    """See _shares.pyi."""

    cdef HotPath hot

    def __init__(self, HotPath hot not None):
        self.hot = hot

    cdef ParkedRequest* _parked(self, int count, int32_t wait_ms, object done) except? NULL:
        # With a number, under the lock of the hot path's own worker. NULL: it cannot be parked.
        cdef HotPath hot = self.hot
        cdef ParkedRequest* parked
        cdef GroupWrite* write
        cdef Batch batch
        batch_prepare(&batch, NULL, 0, 1, 0)
        write = group_write_new(&batch, 0)
        if write == NULL:
            raise MemoryError
        parked = parked_new(
            hot.own_worker, &_SHARE, NULL, count, <int64_t>sizeof(GroupWrite), wait_ms, 1)
        if parked == NULL:
            free(write)
            return NULL
        parked.kept = write
        hot.last_number += 1
        write.number = hot.last_number
        hot.awaiting[write.number] = done
        return parked

    cdef int _forget(self, ParkedRequest* parked) except -1:
        del self.hot.awaiting[(<GroupWrite*>parked.kept).number]
        return 0

    def await_records(
        self, Replica replica not None, int64_t offset, bint is_committed, int32_t count_bytes,
        int32_t timeout_ms, done not None,
    ):
        cdef HotPath hot = self.hot
        cdef ParkedRequest* parked
        cdef RecordsWatch watch = RecordsWatch.__new__(RecordsWatch, hot)
        cdef int waits = 0
        with hot.own_lock:
            parked = self._parked(1, timeout_ms, done)
            if parked != NULL:
                take_reference(&parked.refs, "share: a watch holds its request")
                watch.parked = parked
                parked.wanted = <uint64_t>max(1, count_bytes)
                parked.isolation = TO_LAST_STABLE if is_committed else TO_HIGH_WATERMARK
                parked.read_from = FROM_LEADER
                parked.watches[0].fetch_offset = offset
                parked.watches[0].max_bytes = max(1, count_bytes)
                parked.watches[0].leader_epoch = -1
                parked.watches[0].partition = replica.partition
                partition_acquire(replica.partition)
                with nogil:
                    waits = _wait(hot.own_worker, parked)
                if not waits:
                    self._forget(parked)
                    with nogil:
                        parked_drop(parked)
            ticks = hot._take_ticks(hot.own_worker)
        for tick in ticks:
            hot.watch_deadline(tick)
        if not waits:
            done(ErrorCode.NONE)
        return watch

    def await_end(self, WrappedRequest request not None, bint sends_no_more, done not None):
        cdef HotPath hot = self.hot
        cdef ParkedTable* table = &hot.context.parked
        cdef ParkedRequest* parked
        cdef Channel* channel
        cdef int lives = 0
        if request.node == NULL:
            raise InvariantError("the request has been answered; its connection may be gone")
        channel = request.node.channel
        with hot.own_lock:
            parked = self._parked(0, FOR_EVER_MS, done)
            if parked == NULL:
                raise KafkaError(
                    ErrorCode.SHARE_SESSION_LIMIT_REACHED, "no room for one more waiting request")
            parked.outlasts_requests = not sends_no_more
            with nogil:
                lock_ranked(&table.lock, RANK_QUEUE)
                # While this request is with a handler it has not left with all.
                lives = channel.left == 0 or not sends_no_more
                if lives:
                    linked_insert(
                        &channel.parked, NULL, parked, &parked.previous_here, NULL,
                        "a channel's sessions: nothing is before the first")
                unlock_ranked(&table.lock, RANK_QUEUE)
            if not lives:
                self._forget(parked)
            with nogil:
                parked_drop(parked)
                if not lives:
                    parked_drop(parked)
        if not lives:
            done(ErrorCode.NONE)

    def has_left(self, WrappedRequest request not None):
        if request.node == NULL:
            raise InvariantError("the request has been answered; its connection may be gone")
        # With the GIL, so that no other thread answers it meanwhile; without the lock under which
        # the Processor changes it, since a byte is whole.
        return request.node.channel.left != 0

    def call_soon(self, done not None):
        cdef HotPath hot = self.hot
        cdef ParkedRequest* parked = NULL
        with hot.own_lock:
            parked = self._parked(0, FOR_EVER_MS, done)
            if parked != NULL:
                with nogil:
                    parked_hand_over(&hot.context, parked)
                    parked_drop(parked)
                    parked_drop(parked)
        if parked == NULL:
            done(ErrorCode.NONE)
