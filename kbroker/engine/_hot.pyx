# cython: language_level=3
"""The hot path's face: `serve()`, in which a handler thread spends its life.

    serve: take a run -> serve it (`_run`) -> take the next one

A wholly hot run never takes the GIL. `serve` returns to Python only with requests that Python must
answer, with deadlines that the time wheel must hold, with the idle tick, or at the end. Before it
returns it has pushed its answers and given up the role of taker.

Every thread that calls in here has a worker of its own: handlers by index; the timer, the
controller and the control loop share one under a lock, and so do the handlers for produces that
Python has unpacked.
It joins the requests of `net` with `replica` and `log`, and with the groups of `coordinator`.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

import threading

from kbroker._net cimport SocketServer
from kbroker.coordinator.group._groups cimport GroupTable
from kbroker.coordinator.runtime._batches cimport batch_prepare
from kbroker.core._arena cimport arena_reset
from kbroker.core._atomics cimport kb_load_int, kb_store_int
from kbroker.core._figures cimport kb_count
from kbroker.core._keyed_hash cimport kb_random_key
from kbroker.core._limits cimport LISTENERS_MAX, PARKED_BYTES_MAX, WORKERS_MAX
from kbroker.core._require cimport require_same
from kbroker.core._sync cimport kb_now_ns, pthread_self, pthread_setname_np
from kbroker.errors import ErrorCode, InvariantError
from kbroker.log.engine._types cimport Batch
from kbroker.net._request_channel cimport (
    TAKE_ASIDE, TAKE_CLOSED, TAKE_COLD, TAKE_IDLE, request_channel_add_handler,
    request_channel_enter_python,
    request_channel_is_held, request_channel_left, request_channel_retire,
    request_channel_served_aside, request_channel_take)
from kbroker.net._types cimport ACTION_CLOSE, CAUSE_NO_MEMORY, Request
from kbroker.net._wrapped_request cimport WrappedRequest, request_wrap
from kbroker.replica._fetch_session cimport sessions_free, sessions_new
from kbroker.replica._replica cimport Replica
from kbroker.replica._snapshot cimport Snapshot, snapshot_enter, snapshot_leave
from kbroker.replica._topic_table cimport TopicTable
from kbroker.engine.worker._answers cimport (
    worker_answer, worker_free, worker_give_up_role, worker_hand_over, worker_new)
from kbroker.engine._at_once cimport at_once_cover, at_once_end
from kbroker.engine.worker._context cimport (
    REASON_COLD, REASON_DECOMPRESS, REASON_GROUP, REASON_METADATA, REASON_NONE, REASON_RECOMPRESS,
    REASON_RIGHTS, REASON_TRANSACTION, TICK_MS, HotWorker, OwnAddress, ParkedRequest)
from kbroker.engine.apis._group_write cimport (
    WRITE_WAITS, GroupWrite, group_write_new, group_write_wait)
from kbroker.engine.worker._hot_figures cimport hot_statistics, note_gil_wait
from kbroker.engine.worker._leader_throttle cimport UNLIMITED, leader_throttle_set
from kbroker.engine.waiting._long_polls cimport (
    long_polls_close, long_polls_end_gathering, long_polls_end_left, long_polls_expire,
    long_polls_wake)
from kbroker.engine.waiting._parked cimport (
    parked_drop, parked_give_asking, parked_init)
from kbroker.engine.apis._produce cimport produce_flush, produce_plan
from kbroker.engine.apis._produce_checked cimport (
    produce_check, produce_finish_checked, produce_unchecked)
from kbroker.engine.apis._produce_plan cimport ProducePlan
from kbroker.engine.apis._produce_verify cimport produce_let_guards_go
from kbroker.engine.apis._produce_question cimport ProduceQuestions
from kbroker.engine._run cimport serve_run
from kbroker.engine.worker._worker_mode cimport MODE_ASIDE, worker_set_mode

cdef extern from "<stdio.h>" nogil:
    int snprintf(char* text, size_t size, const char* format, ...)

cdef enum:
    IDLE_TICK_NS = 300000000      # the receive wait of Kafka's handlers
    GATHER_NS = 500000            # what clients need to send again, and little beside a round trip
    LINGER_NS = 5000000           # of records that no request waits for: fewer rounds
    VERIFICATION_MS = 30000       # of a produce that begins a transaction in a partition

SERVED = 0                        # requests or deadlines for Python
IDLE = 1
CLOSED = 2

_REASONS = {
    REASON_COLD: "cold",
    REASON_DECOMPRESS: "decompress",
    REASON_RECOMPRESS: "recompress",
    REASON_METADATA: "metadata",
    REASON_GROUP: "group",
    REASON_TRANSACTION: "transaction",
    REASON_RIGHTS: "rights",
}


cdef Snapshot* _enter(HotWorker* worker) noexcept nogil:
    return snapshot_enter(worker.context.registry, worker.reader)


cdef void _leave(HotWorker* worker) noexcept nogil:
    # What was answered goes; nothing of the snapshot is held any more.
    worker_hand_over(worker)
    snapshot_leave(worker.reader)
    require_same(worker.advanced, NULL, "hot path: no partition stays with its own worker")
    arena_reset(&worker.arena)


cdef void _end_cold(HotWorker* worker) noexcept nogil:
    # Python had no memory for these requests, so they get no answer: close their connections.
    cdef Request* request
    worker.cold_tail = NULL
    while worker.cold_head != NULL:
        request = worker.cold_head
        worker.cold_head = request.next
        request.next = NULL
        request.action = ACTION_CLOSE
        request.cause = CAUSE_NO_MEMORY
        worker_answer(worker, request)
    worker_hand_over(worker)


cdef int64_t _may_sleep_ns(HotWorker* worker) noexcept nogil:
    # Till the next idle tick, or till a fetch that gathers has waited for its moment.
    if worker.gathering == NULL:
        return IDLE_TICK_NS
    return max(0, worker.gathers_until_ns - kb_now_ns())


cdef inline int _has_for_python(const HotWorker* worker) noexcept nogil:
    # Beside requests: no turn there is needed for these.
    return worker.tick_count > 0 or worker.settled != NULL or worker.asking != NULL


cdef int _serve(HotWorker* worker) noexcept nogil:
    # Until Python is needed: a TakeStatus, and the work for Python is in the worker's lists.
    cdef int status = _serve_runs(worker)
    if (status != TAKE_COLD or worker.cold_head != NULL or worker.settled != NULL
            or worker.asking != NULL):
        long_polls_end_gathering(worker, NULL)  # it may be long; deadlines alone are not
    return status


cdef int _serve_runs(HotWorker* worker) noexcept nogil:
    cdef Request* run = NULL
    cdef int count = 0
    cdef int status
    cdef int mode
    cdef int64_t may_sleep_ns
    if not worker.named:
        worker.named = 1
        snprintf(worker.kernel_name, sizeof(worker.kernel_name), "request-hand-%d",
                 worker.handler.index)
        pthread_setname_np(pthread_self(), worker.kernel_name)
    while True:
        long_polls_end_left(worker)   # who leaves may have been called for it
        if not _has_for_python(worker) and kb_load_int(&worker.leaving):
            worker_give_up_role(worker)
            request_channel_left(worker.context.request_channel)
            return TAKE_CLOSED
        if _has_for_python(worker):
            worker_give_up_role(worker)
            request_channel_enter_python(
                worker.context.request_channel, &worker.handler, 1,
                &worker.cold_head, &worker.cold_tail)
            return TAKE_COLD
        may_sleep_ns = _may_sleep_ns(worker)
        if may_sleep_ns == 0:
            long_polls_end_gathering(worker, NULL)
            continue
        status = request_channel_take(
            worker.context.request_channel, &worker.handler, worker.has_role, may_sleep_ns,
            &run, &count)
        worker.has_role = 0
        if status == TAKE_IDLE and worker.gathering != NULL:
            long_polls_end_gathering(worker, NULL)
            continue
        if status == TAKE_IDLE or status == TAKE_CLOSED:
            if long_polls_end_left(worker):
                continue          # called for this; the end may have come before it woke
            return status
        if status == TAKE_COLD:
            kb_count(&worker.handler.cold_requests, 1)
            if run.cold_reason == REASON_NONE:  # else it was in a run before
                run.cold_reason = REASON_COLD
            worker.cold_head = run
            worker.cold_tail = run
            return status
        kb_count(&worker.handler.runs, 1)
        kb_count(&worker.handler.run_requests, count)
        if status == TAKE_ASIDE:
            long_polls_end_gathering(worker, NULL)
            mode = worker_set_mode(worker, MODE_ASIDE)
            serve_run(worker, run)
            worker_set_mode(worker, mode)
            request_channel_served_aside(worker.context.request_channel, &worker.handler)
        else:
            worker.has_role = 1
            serve_run(worker, run)
        if (
            worker.cold_head != NULL or _has_for_python(worker)
        ) and request_channel_enter_python(
            worker.context.request_channel, &worker.handler, _has_for_python(worker),
            &worker.cold_head, &worker.cold_tail,
        ):
            worker_give_up_role(worker)
            return TAKE_COLD


@cython.no_gc_clear  # its context points into the server, which must not go first
cdef class HotPath:
    """What the handlers of one broker share."""

    def __cinit__(
        self, SocketServer server not None, TopicTable table not None, *,
        int session_slots_max, long long session_eviction_ms_min, int fetch_bytes_max,
        int inline_range_bytes=4096, bint rack_aware=False,
        long long gather_ns=GATHER_NS, long long linger_ns=LINGER_NS,
        int verification_ms=VERIFICATION_MS, long long parked_bytes_max=PARKED_BYTES_MAX,
    ):
        self.server = server
        self.table = table
        self.groups = None
        self.own_lock = threading.Lock()
        self.awaiting = {}
        self.cold_lock = threading.Lock()
        self.context.request_channel = &server.channel
        self.context.hash_seed = kb_random_key()
        self.questions = ProduceQuestions()
        self.questions.context = &self.context
        parked_init(&self.context, parked_bytes_max)
        self.context.registry = table.registry
        self.context.published = &table.published
        self.context.fetch_bytes_max = fetch_bytes_max
        self.context.inline_range_bytes = inline_range_bytes
        self.context.rack_aware = rack_aware
        self.context.gather_ns = max(1, gather_ns)
        self.context.linger_ns = max(1, linger_ns)
        self.context.verifies = 1
        self.context.verification_ms = verification_ms
        leader_throttle_set(&self.context.leader_throttle, UNLIMITED)
        self.context.sessions = sessions_new(session_slots_max, session_eviction_ms_min)
        with nogil:
            self.own_worker = worker_new(&self.context, -1)
            self.cold_worker = worker_new(&self.context, -1)
        if (
            self.context.sessions == NULL or self.own_worker == NULL or self.cold_worker == NULL
        ):
            raise MemoryError
        self.cover_processors()

    def __dealloc__(self):
        cdef int i
        if self.context.request_channel != NULL:
            # Its server's threads have ended, or will: they are not to call here any more.
            self.context.request_channel.on_left = NULL
            at_once_end(&self.context)
        for i in range(self.worker_count):
            worker_free(self.workers[i])
        worker_free(self.own_worker)
        worker_free(self.cold_worker)
        sessions_free(self.context.sessions)

    def serve_groups(self, GroupTable groups not None):
        """Whose commits and heartbeats it answers; once, before the handlers start."""
        self.groups = groups
        self.context.groups = groups.shards
        self.context.offset_metadata_max = groups.metadata_bytes_max

    def cover_processors(self):
        """What a Processor serves by itself it serves from here on; one thread calls this."""
        cdef int failed
        with nogil:
            failed = at_once_cover(&self.context)
        if failed:
            raise MemoryError

    def advertise(
        self, int node_id, list addresses, bint creates_topics, int followers_listener = -1
    ):
        """What Metadata says of this node; before the handlers start, else Python answers it.

        `addresses`: per listener of the server, in its order: (host, port), or None for the
        address that a connection used. `creates_topics`: unknown names are for Python.
        `followers_listener`: by its place, the one where brokers come; other fetches that claim to
        be a follower's are refused, as those without the right to in Kafka. -1: any.
        """
        cdef OwnAddress* place
        cdef bytes host
        if len(addresses) > LISTENERS_MAX:
            raise ValueError(f"at most {LISTENERS_MAX} listeners")
        self.own_hosts = []       # C points into these
        self.context.own.node_id = node_id
        self.context.own.creates_topics = creates_topics
        self.context.own.followers_listener = followers_listener
        for i, address in enumerate(addresses):
            if address is None:
                continue
            place = &self.context.own.addresses[<int>i]
            host = address[0].encode()
            self.own_hosts.append(host)
            place.host = <uint8_t*>host
            place.host_length = <int>len(host)
            place.port = address[1]
            self.context.own.host_bytes_max = max(
                self.context.own.host_bytes_max, place.host_length)
        self.context.own.listener_count = <int>len(addresses)

    def throttle_leader(self, int64_t bytes_per_s):
        """What followers out of sync get of throttled partitions from now on, all together."""
        leader_throttle_set(&self.context.leader_throttle, bytes_per_s)

    def verify_transactions(self, bint verifies):
        """Whether producers of TV1 are asked for at their coordinators, from now on."""
        kb_store_int(&self.context.verifies, verifies)

    def add_worker(self):
        """A worker for one more handler thread; its index."""
        if self.worker_count == WORKERS_MAX:
            raise ValueError(f"at most {WORKERS_MAX} request handlers")
        with nogil:
            self.workers[self.worker_count] = worker_new(&self.context, self.worker_count)
        if self.workers[self.worker_count] == NULL:
            raise MemoryError
        self.worker_count += 1
        self._count_worker(self.worker_count - 1)
        return self.worker_count - 1

    def retire_worker(self, int index):
        """Its thread comes back with CLOSED when it has done what it has taken."""
        kb_store_int(&self.workers[index].leaving, 1)
        with nogil:
            request_channel_retire(self.context.request_channel, &self.workers[index].handler)

    def revive_worker(self, int index):
        """For another thread, once the one before has left."""
        self.workers[index].named = 0
        kb_store_int(&self.workers[index].leaving, 0)
        self._count_worker(index)

    cdef _count_worker(self, int index):
        with nogil:
            request_channel_add_handler(
                self.context.request_channel, &self.workers[index].handler)

    def is_held(self, int index):
        """Whether its thread is at a slow file, or in a run that takes long."""
        cdef int held
        with nogil:
            held = request_channel_is_held(
                self.context.request_channel, &self.workers[index].handler)
        return bool(held)

    def serve(self, int index):
        """Serves until Python is needed: (status, cold requests, new deadline ticks)."""
        cdef HotWorker* worker = self.workers[index]
        cdef int status
        cdef int64_t asked_ns
        with nogil:
            status = _serve(worker)
            asked_ns = kb_now_ns()
        note_gil_wait(worker, kb_now_ns() - asked_ns)
        if status == TAKE_IDLE:
            return IDLE, (), ()
        if status == TAKE_CLOSED:
            return CLOSED, (), ()
        return SERVED, self._wrap_cold(worker), self._take_ticks(worker)

    cdef list _wrap_cold(self, HotWorker* worker):
        cdef SocketServer server = self.server
        wrapped = []
        try:
            while worker.cold_head != NULL:
                reason = _REASONS.get(worker.cold_head.cold_reason)
                request = request_wrap(
                    server, &server.channel, server.listeners, &worker.cold_head, reason)
                if request is not None:
                    wrapped.append(request)
        except BaseException:
            # Those that are wrapped are closed as they are dropped; so are the others, here.
            with nogil:
                _end_cold(worker)
            raise
        worker.cold_tail = NULL
        return wrapped

    cdef list _take_ticks(self, HotWorker* worker):
        ticks = [worker.ticks[i] for i in range(worker.tick_count)]
        worker.tick_count = 0
        return ticks

    @staticmethod
    def tick_deadline_ms(tick):
        """The monotonic time, in ms, at which a deadline tick is to be expired."""
        return tick * TICK_MS

    def expire(self, uint64_t tick):
        """Answers the parked requests whose deadline tick has come."""
        cdef HotWorker* worker = self.own_worker
        with self.own_lock:
            with nogil:
                long_polls_expire(worker, _enter(worker), tick)
                _leave(worker)

    def wake(self, Replica replica not None):
        """Answers the requests parked on a partition that moved, went away or is led elsewhere."""
        cdef HotWorker* worker = self.own_worker
        with self.own_lock:
            with nogil:
                long_polls_wake(worker, _enter(worker), replica.partition)
                _leave(worker)

    def await_followers(
        self, Replica replica not None, int64_t last_offset, int32_t led_since, int32_t timeout_ms,
        done not None,
    ):
        """Calls `done` once, with a coordinator's error, when the followers have an offset that was
        written while this broker led since that epoch, or when it is certain that they will not:
        now, or on a handler's thread."""
        cdef Batch batch
        batch_prepare(&batch, NULL, 0, 1, 0)
        batch.last_offset = last_offset
        batch.led_since = led_since
        self._await(replica, &batch, 0, timeout_ms, done)

    def await_low_watermark(
        self, Replica replica not None, int64_t offset, int32_t timeout_ms, done not None,
    ):
        """Has `done` called once with an error, NONE when the logs of all live replicas begin there
        or later: now, or on a handler's thread."""
        cdef Batch batch
        batch_prepare(&batch, NULL, 0, 1, 0)
        batch.last_offset = offset
        self._await(replica, &batch, 1, timeout_ms, done)

    cdef int _await(
        self, Replica replica, Batch* batch, int deletes, int32_t timeout_ms, object done,
    ) except -1:
        cdef HotWorker* worker = self.own_worker
        cdef GroupWrite* write
        cdef int status
        batch.awaits_followers = 1
        write = group_write_new(batch, 0)
        if write == NULL:
            raise MemoryError
        write.deletes = deletes
        with self.own_lock:
            self.last_number += 1
            write.number = self.last_number
            self.awaiting[write.number] = done
            with nogil:
                status = group_write_wait(worker, write, replica.partition, timeout_ms)
                arena_reset(&worker.arena)
            if status != WRITE_WAITS:
                del self.awaiting[self.last_number]
            ticks = self._take_ticks(worker)
        for tick in ticks:
            self.watch_deadline(tick)
        if status != WRITE_WAITS:
            done(ErrorCode(status))
        return 0

    def take_settled(self, int index):
        """Writes that ended in `serve`, with their errors: (callback, error)."""
        cdef HotWorker* worker = self.workers[index]
        cdef ParkedRequest* parked = worker.settled
        cdef GroupWrite* write
        settled = []
        numbers = []
        while parked != NULL:     # an exception here changes nothing: they are taken another time
            write = <GroupWrite*>parked.kept
            number = write.number
            settled.append((self.awaiting[number], ErrorCode(write.error)))
            numbers.append(number)
            parked = parked.next_left
        for number in numbers:
            del self.awaiting[number]
        while worker.settled != NULL:
            parked = worker.settled
            worker.settled = parked.next_left
            with nogil:
                parked_drop(parked)
        return settled

    def take_asking(self, int index):
        """Produces that begin a transaction here, with which `serve` returned; see `take`."""
        return self.questions.take(self.workers[index])

    def coordinator_answered(self, number, list errors):
        """The answer to one of them: (error, the coordinator's own) for each place. Any thread."""
        self.questions.answered(number, errors)

    def close_parked(self):
        """Answers everything that is parked; from now on nothing parks."""
        cdef HotWorker* worker = self.own_worker
        with self.own_lock:
            with nogil:
                long_polls_close(worker, _enter(worker))
                _leave(worker)
        self.questions.forget()

    def pass_on(self, WrappedRequest request not None):
        """Serves a request of a hot API that was taken out of the hot path (`set_cold`).

        What that leaves for Python, as `serve` has it: (cold requests, new deadline ticks).
        """
        cdef HotWorker* worker = self.cold_worker
        cdef Request* node = request.node
        if node == NULL:
            raise InvariantError(f"request {request.correlation_id} was answered already")
        request.node = NULL
        node.next = NULL
        with self.cold_lock:
            with nogil:
                serve_run(worker, node)
                parked_give_asking(worker)
            return self._wrap_cold(worker), self._take_ticks(worker)

    def produce_batches(self, WrappedRequest request not None):
        """The batches of a produce request for Python, those with a known partition.

        (ordinal, frame, what that frame may unpack to, topic id, position, size): the ordinal is
        for `produce_checked`, position and size for `produce_batch`.
        """
        cdef HotWorker* worker = self.cold_worker
        cdef ProducePlan* plan
        with self.cold_lock:
            try:
                plan = produce_plan(worker, _enter(worker), request.node)
                if plan == NULL:
                    raise MemoryError
                return produce_unchecked(plan)
            finally:
                snapshot_leave(worker.reader)
                arena_reset(&worker.arena)

    def produce_batch(self, WrappedRequest request not None, uint32_t position, uint32_t size):
        """One of them: a copy, so that it outlives the request."""
        if position > request.node.total_bytes or size > request.node.total_bytes - position:
            raise InvariantError(f"the request has no {size} bytes at {position}")
        return (<char*>request.node.data + position)[:size]

    def produce_given_up(self, WrappedRequest request not None):
        """Nothing of it will be written: it lets its guards go. One that was answered has."""
        cdef HotWorker* worker = self.cold_worker
        cdef Snapshot* snapshot
        cdef ProducePlan* plan
        if request.node == NULL or request.node.guards == NULL:
            return
        with self.cold_lock:
            snapshot = _enter(worker)
            with nogil:
                plan = produce_plan(worker, snapshot, request.node)
                if plan != NULL:
                    produce_let_guards_go(plan)
                snapshot_leave(worker.reader)
                arena_reset(&worker.arena)

    def produce_checked(
        self, WrappedRequest request not None, dict twins, dict stored, dict errors,
    ):
        """Appends and answers a produce request that Python has looked into.

        By ordinal: `twins` are uncompressed batches, whose records C walks in place of the
        original's; `stored` replaces what is written; `errors` are Kafka error codes. Answers the
        ordinals of batches that C cannot walk, or that are to be stored in another codec by now:
        then nothing is written or answered, and it is to be called again with more. And new
        deadline ticks, as `serve` has them: what is appended may wait for followers.
        """
        cdef HotWorker* worker = self.cold_worker
        cdef Snapshot* snapshot
        cdef ProducePlan* plan
        with self.cold_lock:
            snapshot = _enter(worker)
            try:
                plan = produce_plan(worker, snapshot, request.node)
                if plan == NULL:
                    raise MemoryError
                unknown = produce_check(plan, twins, stored, errors)
                if unknown:
                    return unknown, []
                request.node = NULL
                with nogil:
                    produce_finish_checked(worker, snapshot, plan)
            finally:
                snapshot_leave(worker.reader)
                with nogil:
                    produce_flush(worker)
                arena_reset(&worker.arena)
            return unknown, self._take_ticks(worker)

    def statistics(self):
        """Figures of the hot path as a dict; counters since the start."""
        return hot_statistics(
            &self.context, self.workers, self.worker_count, self.own_worker, self.cold_worker)
