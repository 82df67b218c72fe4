# cython: language_level=3
"""The records of a run's transactions: AddPartitionsToTxn, EndTxn, Produce 12.

What these have in common: the moves of a run are written shard by shard, and readers that wait for
the records are called when the run has been answered. The worker's own thread, no GIL.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._shards cimport shard_is_slow, shard_late_from_ns
from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.coordinator.txn._writes cimport RunMoves, moves_write
from kbroker.core._arena cimport arena_take
from kbroker.core._atomics cimport kb_load_i64, kb_load_int, kb_load_ptr
from kbroker.core._require cimport require
from kbroker.core._sync cimport kb_wall_ms
from kbroker.engine.waiting._long_polls cimport long_polls_wake
from kbroker.engine.worker._context cimport HotWorker, TransactionHooks
from kbroker.engine.worker._worker_mode cimport MAY_WAIT_FOR_DISK
from kbroker.log.engine._storage cimport WRITE_HANGS
from kbroker.net._request_channel cimport request_channel_set_aside
from kbroker.net._types cimport Request
from kbroker.replica._metadata_view cimport MetadataView, ViewTopic
from kbroker.replica._partition cimport Partition, partition_release
from kbroker.replica._snapshot cimport Snapshot
from kbroker.replica._topic_index cimport topic_place_by_name


cdef TransactionHooks* transactions_of(HotWorker* worker) noexcept nogil:
    cdef TransactionHooks* hooks = <TransactionHooks*>kb_load_ptr(
        <void**>&worker.context.transactions)
    if hooks == NULL or not kb_load_int(&hooks.serves):
        return NULL
    return hooks


cdef int64_t transactions_now_ms(const TransactionHooks* hooks) noexcept nogil:
    return kb_wall_ms() + kb_load_i64(&hooks.shards.clock_shift_ms)


cdef const ViewTopic* published_topic(
    HotWorker* worker, const uint8_t* name, int32_t length
) noexcept nogil:
    cdef MetadataView* view = <MetadataView*>kb_load_ptr(<void**>worker.context.published)
    if view == NULL:
        return NULL
    return <const ViewTopic*>topic_place_by_name(&view.index, name, length)[0]


cdef int touched_init(HotWorker* worker, TxnTouched* touched, int capacity) noexcept nogil:
    touched.count = 0
    touched.capacity = capacity
    touched.partitions = <Partition**>arena_take(
        &worker.arena, sizeof(Partition*) * <size_t>(capacity + 1))
    return 0 if touched.partitions != NULL else -1


cdef void touched_add(TxnTouched* touched, Partition* partition) noexcept nogil:
    require(touched.count < touched.capacity, "transactions: touched partitions have room",
            touched.count, touched.capacity)
    touched.partitions[touched.count] = partition
    touched.count += 1


cdef void touched_wake(
    HotWorker* worker, Snapshot* snapshot, TxnTouched* touched
) noexcept nogil:
    cdef int i
    for i in range(touched.count):
        long_polls_wake(worker, snapshot, touched.partitions[i])
        partition_release(touched.partitions[i])
    touched.count = 0


cdef int is_set_aside(HotWorker* worker, Request* request, Shard* shard) noexcept nogil:
    cdef int slow = 0 if worker.may & MAY_WAIT_FOR_DISK else shard_is_slow(shard)
    return slow != 0 and request_channel_set_aside(
        worker.context.request_channel, request, shard, shard_late_from_ns(shard),
        slow == WRITE_HANGS)


cdef void txn_write(
    HotWorker* worker, RunMoves* moves, TxnTouched* touched, int64_t now_ms
) noexcept nogil:
    cdef TransactionHooks* hooks = worker.context.transactions
    cdef int version = kb_load_int(&hooks.value_version)
    cdef Partition* partition
    cdef int i
    for i in range(moves.count):
        partition = moves_write(&moves.shards[i], version, now_ms, &worker.arena)
        if partition != NULL:
            touched_add(touched, partition)
