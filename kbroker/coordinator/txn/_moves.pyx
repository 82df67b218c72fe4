# cython: language_level=3
"""The moves of a transactional id that handlers make without Python: those that are plainly right.

    claim   a request of the right producer meets an id without a write under way, in a state where
            its cell of states.py is BEGIN, JOIN, PREPARE or ANSWER; a client's first request since
            the id was loaded is for Python, which remembers the client
    write   the image after it (`_writes`)
    apply   the image is the id's; an outcome leaves it pending, until its Complete* is applied

Everything else is for Python, and nothing has been changed then: image.py and decisions.py say what
a move is, and this repeats it. Between claim and apply the id may have been unloaded, and loaded in
another term; an entry has a number, so that the one that was claimed is known.

Locks: that of the ids, for one look each. No GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kbroker.coordinator.txn._ids cimport ids_find_locked, ids_lock, ids_unlock
from kbroker.coordinator.txn._places cimport Place, places_free, places_hold, places_join
from kbroker.coordinator.txn._structs cimport (
    NO_PRODUCER_ID,
    TXN_COMPLETE_ABORT,
    TXN_COMPLETE_COMMIT,
    TXN_EMPTY,
    TXN_ONGOING,
    TXN_PREPARE_ABORT,
    TXN_PREPARE_COMMIT,
    Places,
    TxnEnded,
    TxnEntry,
    TxnIds,
    TxnImage,
)
from kbroker.core._arena cimport Arena, arena_take

cdef enum:
    RAISES_EPOCHS = 2             # as image.py has it


cdef inline int _is_of(
    const TxnEntry* entry, int64_t producer_id, int16_t producer_epoch
) noexcept nogil:
    return (entry != NULL and entry.image.producer_id == producer_id
            and entry.image.epoch == producer_epoch)


cdef void _claim_locked(TxnEntry* entry, TxnMove* move) noexcept nogil:
    entry.pending = 1
    move.number = entry.number
    move.term = entry.term


cdef MoveVerdict _add_locked(
    TxnEntry* entry, TxnMove* move, const Place* sorted, int32_t count, int16_t client_version,
    int64_t now_ms
) noexcept nogil:
    cdef TxnImage* after = &move.after
    cdef const Places* before = NULL
    if entry.image.state == TXN_ONGOING:
        if places_hold(entry.image.places, sorted, count):
            return MOVE_NOT_NEEDED
        before = entry.image.places
    elif entry.image.state not in (TXN_EMPTY, TXN_COMPLETE_COMMIT, TXN_COMPLETE_ABORT):
        return MOVE_FOR_PYTHON
    after[0] = entry.image
    if places_join(before, sorted, count, &after.places) != 0:
        return MOVE_FOR_PYTHON
    move.owns_places = 1
    if entry.image.state != TXN_ONGOING:
        after.state = TXN_ONGOING
        after.start_ms = now_ms
    after.update_ms = now_ms
    after.client_version = client_version
    after.previous_producer_id = after.producer_id
    _claim_locked(entry, move)
    return MOVE_TO_WRITE


cdef MoveVerdict move_add(
    const TxnIds* ids, TxnMove* move, int64_t producer_id, int16_t producer_epoch,
    const Place* sorted, int32_t count, int16_t client_version, int64_t now_ms
) noexcept nogil:
    cdef MoveVerdict verdict = MOVE_FOR_PYTHON
    cdef TxnEntry* entry
    ids_lock()
    entry = ids_find_locked(ids, move.id, move.id_length)
    if (_is_of(entry, producer_id, producer_epoch) and not entry.pending and count > 0
            and (entry.has_client or client_version >= RAISES_EPOCHS)):
        verdict = _add_locked(entry, move, sorted, count, client_version, now_ms)
    ids_unlock()
    return verdict


cdef MoveVerdict _end_locked(
    TxnEntry* entry, TxnMove* move, int committed, int16_t version, int16_t epoch_max,
    int64_t now_ms, Arena* arena
) noexcept nogil:
    cdef TxnImage* after = &move.after
    cdef const Places* places = entry.image.places
    cdef size_t size_bytes
    if (entry.image.state != TXN_ONGOING or places == NULL
            or entry.image.next_producer_id != NO_PRODUCER_ID):
        return MOVE_FOR_PYTHON
    if version >= RAISES_EPOCHS and entry.image.epoch >= epoch_max - 1:
        return MOVE_FOR_PYTHON    # a new producer id is needed
    after[0] = entry.image
    size_bytes = sizeof(Places) + <size_t>places.size_bytes
    after.places = <Places*>arena_take(arena, size_bytes)
    if after.places == NULL:
        return MOVE_FOR_PYTHON
    memcpy(after.places, places, size_bytes)
    after.state = TXN_PREPARE_COMMIT if committed else TXN_PREPARE_ABORT
    after.update_ms = now_ms
    after.client_version = version
    after.previous_producer_id = after.producer_id
    if version >= RAISES_EPOCHS:
        after.last_epoch = after.epoch
        after.epoch += 1
    _claim_locked(entry, move)
    return MOVE_TO_WRITE


cdef MoveVerdict move_end(
    const TxnIds* ids, TxnMove* move, int64_t producer_id, int16_t producer_epoch,
    int committed, int16_t version, int16_t epoch_max, int64_t now_ms, Arena* arena
) noexcept nogil:
    cdef MoveVerdict verdict = MOVE_FOR_PYTHON
    cdef TxnEntry* entry
    ids_lock()
    entry = ids_find_locked(ids, move.id, move.id_length)
    if (_is_of(entry, producer_id, producer_epoch) and not entry.pending
            and entry.has_client):
        verdict = _end_locked(entry, move, committed, version, epoch_max, now_ms, arena)
    ids_unlock()
    return verdict


cdef void move_complete(TxnMove* move, int64_t now_ms) noexcept nogil:
    cdef TxnImage* after = &move.after
    after.state = (
        TXN_COMPLETE_COMMIT if after.state == TXN_PREPARE_COMMIT else TXN_COMPLETE_ABORT)
    after.update_ms = now_ms
    after.places = NULL
    after.previous_producer_id = after.producer_id


cdef int transaction_holds(
    const TxnIds* ids, const uint8_t* id, int32_t id_length, int64_t producer_id,
    int16_t producer_epoch, const Place* sorted, int32_t count
) noexcept nogil:
    cdef TxnEntry* entry
    cdef int holds
    ids_lock()
    entry = ids_find_locked(ids, id, id_length)
    # A write under way does not count: the partition's leader asks its log again.
    holds = (_is_of(entry, producer_id, producer_epoch) and entry.image.state == TXN_ONGOING
             and places_hold(entry.image.places, sorted, count))
    ids_unlock()
    return holds


# --- the end of a move ----------------------------------------------------------------------------

cdef TxnEntry* _claimed_locked(const TxnIds* ids, const TxnMove* move) noexcept nogil:
    cdef TxnEntry* entry = ids_find_locked(ids, move.id, move.id_length)
    return entry if entry != NULL and entry.number == move.number else NULL


cdef void _count_locked(TxnEnded* ended, TxnEntry* entry) noexcept nogil:
    if entry.image.state == TXN_PREPARE_COMMIT:
        ended.committed += 1
    else:
        ended.aborted += 1
        entry.aborted += 1


cdef int move_apply(const TxnIds* ids, TxnMove* move) noexcept nogil:
    cdef TxnEntry* entry
    cdef Places* places
    cdef Places* freed = NULL
    ids_lock()
    entry = _claimed_locked(ids, move)
    if entry != NULL:
        places = entry.image.places
        entry.image = move.after
        entry.pending = 1
        if move.after.state in (TXN_PREPARE_COMMIT, TXN_PREPARE_ABORT):
            entry.image.places = places  # the move's are a copy
            _count_locked(ids.ended, entry)
        else:
            freed = places
            entry.pending = 0
            move.owns_places = 0
        if move.after.state in (TXN_COMPLETE_COMMIT, TXN_COMPLETE_ABORT):
            entry.fence_failed = 0
    ids_unlock()
    places_free(freed)
    if move.owns_places:
        places_free(move.after.places)
        move.owns_places = 0
    return entry != NULL


cdef void move_let_go(const TxnIds* ids, TxnMove* move) noexcept nogil:
    cdef TxnEntry* entry
    ids_lock()
    entry = _claimed_locked(ids, move)
    if entry != NULL:
        entry.pending = 0
    ids_unlock()
    if move.owns_places:
        places_free(move.after.places)
        move.owns_places = 0


cdef void move_leave(const TxnIds* ids, TxnMove* move) noexcept nogil:
    cdef TxnEntry* entry
    ids_lock()
    entry = _claimed_locked(ids, move)
    if entry != NULL:
        entry.left = 1
    ids_unlock()
