# cython: language_level=3
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kbroker.log.engine._types cimport Batch
from kbroker.engine.worker._context cimport HotContext, HotWorker, ParkedRequest
from kbroker.replica._partition cimport Partition
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.apis._produce_plan cimport FoundBatch, ProduceFrame, ProducePlan

cdef enum:
    ADDS_FROM = 12                # of a version: what is not in the transaction yet is added (TV2)


# A batch that begins a transaction in its partition, and the answer of the coordinator.
cdef struct GuardedBatch:
    int32_t ordinal               # of the request's batches, as plan_next() has them
    int16_t error                 # of Produce
    int16_t cause                 # the coordinator's own error, if that is another one
    int64_t guard
    int64_t producer_id
    int8_t is_held                # the guard, by this request, for this batch and those like it


# The guards of a produce that comes again, freed with its request.
cdef struct Guards:
    int64_t dequeued_ns           # when it came first
    int32_t count
    GuardedBatch* batches         # in the same allocation


cdef struct UnverifiedTransaction:
    uint8_t* transactional_id
    int32_t id_length
    int16_t producer_epoch
    int64_t producer_id


# The partition of a guarded batch.
cdef struct UnverifiedPartition:
    uint8_t* topic
    int32_t topic_length
    int32_t index
    int32_t transaction           # its place among them
    Partition* partition          # one reference


# Kept by a request that waits. It does not change, except `guards`, which belong to the thread that
# moves the request to done.
cdef struct Verification:
    int16_t version               # of the produce
    int32_t transaction_count
    UnverifiedTransaction* transactions
    int32_t count
    UnverifiedPartition* partitions  # of each batch in the guards
    Guards* guards                # NULL: the request has them

# A transactional batch of a frame that is being planned: an error for all of the frame, or 0.
cdef int16_t produce_note_transactional(
    ProducePlan* plan, ProduceFrame* frame, const Batch* batch) noexcept nogil

# 1: the request waits, and comes again with its guards. 0: it goes on.
cdef int produce_verify(HotWorker* worker, ProducePlan* plan) noexcept nogil

# A planned request that was to go on with guards that C has given it waits after all: 1. 0: it
# cannot, and each of its batches has an error.
cdef int produce_await_coordinator(HotWorker* worker, ProducePlan* plan) noexcept nogil

# Whether two batches are of one.
cdef int same_transaction(const FoundBatch* one, const FoundBatch* two) noexcept nogil

# Of a request that comes again: each batch gets its guard, or its error.
cdef void produce_take_guards(ProducePlan* plan) noexcept nogil

# Its batches were appended, or will not be: it lets its guards go. Once is enough.
cdef void produce_let_guards_go(ProducePlan* plan) noexcept nogil

# The plans of a run that go on, once those that join their transactions have been written.
cdef inline ProducePlan* produce_those_joined(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plans
) noexcept nogil:
    cdef ProducePlan* plan = plans
    while plan != NULL and not plan.joins:
        plan = plan.next
    return plans if plan == NULL else produce_join(worker, snapshot, plans)


cdef ProducePlan* produce_join(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plans) noexcept nogil

# The same of guards that C has given it (`plan.unverified`), which lets them go.
cdef void produce_let_found_go(ProducePlan* plan) noexcept nogil

# A waiting request that has been moved to done comes again, with the errors that there are.
cdef void produce_go_on(HotContext* context, ParkedRequest* parked) noexcept nogil
