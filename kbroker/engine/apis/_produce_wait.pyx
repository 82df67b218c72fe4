# cython: language_level=3
"""A produce with acks=-1 that waits for its followers, and what it is answered then.

A batch above the high watermark is not acknowledged. Its request is parked (`_parked`) with one
watch for each such batch, and answered when all of them are settled, whatever comes first at each:

    the high watermark has passed it      no error; 20 if too few are in sync by then
    this broker leads no more, or stops   NOT_LEADER_OR_FOLLOWER
    the topic is deleted, the log gone    UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR
    the request's timeout_ms              REQUEST_TIMED_OUT: the records stay, as in Apache Kafka

The result of a settled batch is final, whatever happens to its partition while others wait. The
offsets are those of the append in every case. A train waits as a whole and leaves in one piece, so
the last timeout of its frames counts; producers have one for all. acks 0 and 1 never wait.

With the pipelined channel the append is all that the client's next requests wait for: the Processor
gets a REQUEST_LOCAL_PROCESSED, makes a slot for the answer and reads on. One notice for each
request, one list of them for each run and Processor, which leaves with the run's answers. The stock
channel gets no notice, and stays muted until the answer has left.

A peer that has shut its sending side is answered at once; one that is gone is not answered.
Threads: the worker's own; no lock is held.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.core._atomics cimport kb_load_int
from kbroker.core._error_codes cimport (
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kbroker.core._figures cimport kb_count
from kbroker.core._list cimport list_append
from kbroker.log.engine._types cimport Batch
from kbroker.net._request cimport request_let_go
from kbroker.replica._partition cimport partition_acquire
from kbroker.replica._snapshot cimport Snapshot, snapshot_by_id
from kbroker.engine.worker._answers cimport worker_local_processed
from kbroker.engine.worker._context cimport (
    WAITS_FOR_FOLLOWERS, HotWorker, ParkedRequest, ParkedWatch, WaiterKind)
from kbroker.engine.waiting._parked cimport parked_abandon, parked_drop, parked_new, parked_wait
from kbroker.engine.apis._produce_answer cimport produce_answer, produce_frame_ends
from kbroker.engine.apis._produce_kept cimport (
    produce_keep, produce_kept_bytes, produce_kept_free)
from kbroker.engine.apis._produce_plan cimport ProduceFrame, ProducePartition, ProducePlan


cdef WaiterKind _PRODUCE = WaiterKind(
    waits_for=WAITS_FOR_FOLLOWERS, complete=_complete, give_up=NULL, free_kept=_free)


cdef int _count_waiting(const ProducePlan* plan, int32_t* timeout_ms) noexcept nogil:
    # Batches that wait, and how long they may.
    cdef const ProduceFrame* frame = plan.frames
    cdef int waiting
    cdef int count = 0
    cdef int32_t topic
    cdef int32_t number
    timeout_ms[0] = 0
    while frame != NULL and not produce_frame_ends(frame):
        waiting = 0
        for topic in range(frame.topic_count):
            for number in range(frame.topics[topic].partition_count):
                waiting += frame.topics[topic].partitions[number].batch.awaits_followers
        if waiting:
            timeout_ms[0] = max(timeout_ms[0], frame.timeout_ms)
        count += waiting
        frame = frame.next
    return count


cdef void _watch_batches(ParkedRequest* parked, ProducePlan* kept) noexcept nogil:
    cdef ParkedWatch* watch = parked.watches
    cdef ProduceFrame* frame = kept.frames
    cdef ProducePartition* place
    cdef int32_t topic
    cdef int32_t number
    while frame != NULL and not produce_frame_ends(frame):
        for topic in range(frame.topic_count):
            for number in range(frame.topics[topic].partition_count):
                place = &frame.topics[topic].partitions[number]
                if place.batch.awaits_followers:
                    watch.batch = &place.batch
                    watch.partition = place.partition
                    partition_acquire(place.partition)
                    watch += 1
        frame = frame.next


cdef ParkedRequest* _parked(
    HotWorker* worker, ProducePlan* plan, int count, int32_t timeout_ms
) noexcept nogil:
    # NULL: it cannot wait.
    cdef size_t kept_bytes = produce_kept_bytes(plan)
    cdef ParkedRequest* parked
    cdef ProducePlan* kept
    if timeout_ms <= 0:
        return NULL
    parked = parked_new(
        worker, &_PRODUCE, plan.request, count, <int64_t>kept_bytes, timeout_ms, 0)
    if parked == NULL:
        return NULL
    kept = produce_keep(plan, kept_bytes)
    if kept == NULL:
        parked_abandon(parked)
        return NULL
    parked.kept = kept
    parked.wanted = count
    _watch_batches(parked, kept)
    request_let_go(plan.request)
    return parked


cdef void _settle(HotWorker* worker, Snapshot* snapshot, ProducePlan* plan) noexcept nogil:
    # What still waits waits no longer. A log that went with its topic is none that is broken.
    cdef ProduceFrame* frame = plan.frames
    cdef ProducePartition* place
    cdef Batch* batch
    cdef int16_t unsettled = REQUEST_TIMED_OUT
    cdef int32_t topic
    cdef int32_t number
    if kb_load_int(&worker.context.parked.closing):
        unsettled = NOT_LEADER_OR_FOLLOWER
    while frame != NULL and not produce_frame_ends(frame):
        for topic in range(frame.topic_count):
            for number in range(frame.topics[topic].partition_count):
                place = &frame.topics[topic].partitions[number]
                batch = &place.batch
                if batch.awaits_followers:
                    batch.awaits_followers = 0
                    batch.error = unsettled
                elif (
                    batch.error == KAFKA_STORAGE_ERROR and batch.base_offset >= 0
                    and snapshot_by_id(snapshot, place.partition.topic_id) == NULL
                ):
                    batch.error = UNKNOWN_TOPIC_OR_PARTITION
        frame = frame.next


cdef void _complete(
    HotWorker* worker, Snapshot* snapshot, ParkedRequest* parked
) noexcept nogil:
    # Its watches are off all lists: no other thread sees its batches.
    cdef ProducePlan* plan = <ProducePlan*>parked.kept
    _settle(worker, snapshot, plan)
    produce_answer(worker, plan)


cdef void _free(void* kept) noexcept nogil:
    produce_kept_free(<ProducePlan*>kept)


cdef void produce_answer_or_park(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plan
) noexcept nogil:
    """Of a request that may wait at least one batch has been appended with acks=-1.

    A request that is parked here waits from produce_wait() on, after the hand-over that brings the
    notice to its Processor: the answer must find its slot.
    """
    cdef int32_t timeout_ms
    cdef int count = _count_waiting(plan, &timeout_ms)
    cdef ParkedRequest* parked
    if count == 0:
        produce_answer(worker, plan)
        return
    parked = _parked(worker, plan, count, timeout_ms)
    if parked == NULL:
        # No time, no memory, no room below PARKED_BYTES_MAX, or the end of the broker. Apache Kafka
        # lets any number wait, in memory without a bound. Here the client is answered at once as it
        # would be later: not known to be replicated. It may send again; its records are in the log,
        # and an idempotent producer's are found there.
        _settle(worker, snapshot, plan)
        produce_answer(worker, plan)
        return
    if plan.request.processor.settings.pipelined:
        worker_local_processed(worker, plan.request)
    list_append(&worker.waiting, &worker.waiting_last, parked, &parked.next_left,
                "produces that are to wait: nothing is after the last")


cdef void produce_wait(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    """What this run has parked waits from here on, in the order of the appends."""
    cdef ParkedRequest* parked = worker.waiting
    cdef ParkedRequest* following
    worker.waiting = worker.waiting_last = NULL
    while parked != NULL:
        following = parked.next_left
        if parked_wait(worker, parked):
            kb_count(&worker.parked_produces, 1)
        else:
            _complete(worker, snapshot, parked)
            parked_drop(parked)
        parked = following
