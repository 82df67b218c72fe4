# cython: language_level=3
"""The records of moves (`_moves`), appended to `__transaction_state` by the handler that moves.

Each id's record is a batch of its own; those of a run for one partition are one write, under the
lock of its shard, as all writes to the topic. Nothing is appended in another term than a move was
claimed in, nor where another replica is to have it first: a handler does not wait for followers.
Where a flush is due after it, the move ends when that is done. No GIL.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._batches cimport batch_prepare
from kbroker.coordinator.runtime._shards cimport (
    shard_append_locked, shard_error, shard_lock, shard_unlock)
from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.coordinator.txn._records cimport txn_batch_bound, txn_put_batch
from kbroker.core._arena cimport Arena, arena_take
from kbroker.core._atomics cimport kb_load_i64, kb_load_int
from kbroker.core._limits cimport RUN_REQUESTS_MAX
from kbroker.core._list cimport list_append
from kbroker.core._require cimport require
from kbroker.log.engine._types cimport Batch
from kbroker.log.upkeep._flush cimport FLUSH_RECORDS
from kbroker.replica._partition cimport (
    Partition, partition_acquire, partition_flush, partition_release)


cdef int moves_init(RunMoves* moves, Arena* arena) noexcept nogil:
    moves.count = 0
    moves.shards = <ShardMoves*>arena_take(arena, sizeof(ShardMoves) * RUN_REQUESTS_MAX)
    return 0 if moves.shards != NULL else -1


cdef void moves_add(RunMoves* moves, TxnMove* move) noexcept nogil:
    # A run has few shards.
    cdef ShardMoves* place = moves.shards
    cdef ShardMoves* end = moves.shards + moves.count
    while place != end and place.shard != move.shard:
        place += 1
    if place == end:
        require(moves.count < RUN_REQUESTS_MAX, "moves: a run has so many requests", moves.count,
                RUN_REQUESTS_MAX)
        place.shard = move.shard
        place.first = place.last = NULL
        moves.count += 1
    list_append(&place.first, &place.last, move, &move.next,
                "moves of a shard: nothing is after the last")


cdef int _build(TxnMove* move, int version, int64_t now_ms, Arena* arena) noexcept nogil:
    # -1: no memory.
    cdef uint8_t* memory = <uint8_t*>arena_take(
        arena, txn_batch_bound(move.id_length, &move.after))
    if memory == NULL:
        return -1
    batch_prepare(
        &move.batch, memory,
        txn_put_batch(memory, move.id, move.id_length, &move.after, version, now_ms, -1), 1, now_ms)
    move.batch.alone = 1
    return 0


cdef Partition* moves_write(
    ShardMoves* moves, int version, int64_t now_ms, Arena* arena
) noexcept nogil:
    cdef Shard* shard = moves.shard
    cdef TxnMove* move = moves.first
    cdef Partition* partition = NULL
    cdef Batch* first = NULL
    cdef Batch** place = &first
    cdef int32_t leader_epoch = -1
    cdef int waiting = 0
    while move != NULL:
        move.fails = _build(move, version, now_ms, arena) != 0
        move = move.next
    shard_lock(shard)
    move = moves.first
    while move != NULL:
        if shard_error(shard) != 0 or move.term != kb_load_i64(&shard.term):
            move.fails = 1
        if not move.fails:
            place[0] = &move.batch
            place = &move.batch.next
        move = move.next
    if first != NULL:
        waiting = shard_append_locked(shard, first, now_ms)
        leader_epoch = kb_load_int(&shard.partition.leader_epoch)
        partition = shard.partition
        partition_acquire(partition)
    shard_unlock(shard)
    # Where another thread has flushed these, too, none is due any more, and they are settled here.
    if partition != NULL and (waiting or kb_load_int(&partition.log.flush_due)):
        _flush(partition, first)
    move = moves.first
    while move != NULL:
        if move.batch.error != 0 or move.batch.awaits_followers != 0:
            move.fails = 1
        move.leader_epoch = leader_epoch
        move = move.next
    if partition != NULL and not kb_load_int(&partition.has_watchers):
        partition_release(partition)
        return NULL
    return partition


cdef void _flush(Partition* partition, Batch* first) noexcept nogil:
    cdef Batch* batch = first
    if partition_flush(partition, FLUSH_RECORDS, first) != 0:
        while batch != NULL:
            batch.awaits_followers = 1    # not known to be on the disk
            batch = batch.next
