# cython: language_level=3
"""The moves of a transactional id that handlers make without Python; see _moves.pyx."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.coordinator.txn._places cimport Place
from kbroker.coordinator.txn._structs cimport Places, TxnIds, TxnImage
from kbroker.core._arena cimport Arena
from kbroker.log.engine._types cimport Batch

cdef enum MoveVerdict:
    MOVE_FOR_PYTHON = 0           # it is not plainly right: nothing is changed
    MOVE_NOT_NEEDED = 1           # it is as the request wants it
    MOVE_TO_WRITE = 2             # claimed: the image is to be written, and then applied or let go


# One move of an id, from its claim to its end. In the memory of a run, zero before the claim.
cdef struct TxnMove:
    TxnMove* next                 # of the same shard
    Shard* shard                  # of the id
    const uint8_t* id             # in the request
    int32_t id_length
    int64_t number                # of the entry
    int64_t term
    TxnImage after                # of a Begin or Join with places of its own
    int8_t owns_places
    int8_t fails                  # what was to be written is not in the log
    int32_t leader_epoch          # of the shard's partition, when it was written
    Batch batch


# Partitions join a transaction, perhaps as its first ones; these are sorted. `client_version`: as
# the image has it.
cdef MoveVerdict move_add(
    const TxnIds* ids, TxnMove* move, int64_t producer_id, int16_t producer_epoch,
    const Place* sorted, int32_t count, int16_t client_version, int64_t now_ms) noexcept nogil
# An open transaction gets its outcome. `version`: 2 from EndTxn 5 on, else 0. The places of the
# image are copied to the arena.
cdef MoveVerdict move_end(
    const TxnIds* ids, TxnMove* move, int64_t producer_id, int16_t producer_epoch,
    int committed, int16_t version, int16_t epoch_max, int64_t now_ms, Arena* arena
) noexcept nogil
# After an outcome that was applied: all markers are there.
cdef void move_complete(TxnMove* move, int64_t now_ms) noexcept nogil

# Whether a producer may write to these sorted partitions; 0: it is Python's question.
cdef int transaction_holds(
    const TxnIds* ids, const uint8_t* id, int32_t id_length, int64_t producer_id,
    int16_t producer_epoch, const Place* sorted, int32_t count) noexcept nogil

# The image is in the log. An outcome leaves the id pending. 0: another term has the id by now.
cdef int move_apply(const TxnIds* ids, TxnMove* move) noexcept nogil
# Nothing of it is in the log.
cdef void move_let_go(const TxnIds* ids, TxnMove* move) noexcept nogil
# An outcome was applied, and its markers are Python's from now on.
cdef void move_leave(const TxnIds* ids, TxnMove* move) noexcept nogil
