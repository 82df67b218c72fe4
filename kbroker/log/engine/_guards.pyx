# cython: language_level=3
"""The guards that keep a batch out of a transaction which its coordinator does not know.

The first batch of a transaction in a partition waits until the coordinator has said that the
partition is in that transaction. Meanwhile the producer has a verification here, whose number, the
guard, the batch brings along when it is appended. A marker ends the verification: a batch that was
verified before the marker comes after the transaction, and its guard is not valid any more. A
second verification of the same producer has another number.

It is waited for by requests, each from the question to the append. The last one lets it go: where
the coordinator has refused, it ends. Where there was no answer it stays and is idle, for its batch
comes again, and one with a later sequence must not overtake that. An idle one keeps no other out:
it is forgotten at the second look at silent producers, or before that where there are too many.

Under the partition's lock. No GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from kbroker.core._atomics cimport kb_add_i64
from kbroker.core._list cimport linked_append, linked_remove
from kbroker.core._name_hash cimport name_hash
from kbroker.core._table cimport table_find, table_free, table_put, table_remove, table_room

cdef int64_t _last_guard = 0      # atomic


cdef inline uint32_t hash_of_id(int64_t producer_id) noexcept nogil:
    return name_hash(<const uint8_t*>&producer_id, <int32_t>sizeof(producer_id))


cdef inline uint32_t hash_of_verification(const void* item) noexcept nogil:
    return hash_of_id((<const Verification*>item).producer_id)


cdef inline int has_id(const void* item, const void* key) noexcept nogil:
    return (<const Verification*>item).producer_id == (<const int64_t*>key)[0]


cdef Verification* guards_find(const Guards* guards, int64_t producer_id) noexcept nogil:
    if guards.by_id.count == 0:
        return NULL
    return <Verification*>table_find(
        &guards.by_id, hash_of_id(producer_id), has_id, &producer_id)


cdef void unlink_idle(Guards* guards, Verification* verification) noexcept nogil:
    linked_remove(&guards.oldest, &guards.newest, verification, &verification.older,
                  "guards: idle neighbours name each other")


cdef void drop(Guards* guards, Verification* verification) noexcept nogil:
    table_remove(
        &guards.by_id, verification, hash_of_verification, "guards: one that goes is known")
    if verification.waiting == 0:
        unlink_idle(guards, verification)
    free(verification)


cdef int has_room(Guards* guards) noexcept nogil:
    if guards.by_id.count < GUARDS_MAX:
        return 1
    if guards.oldest == NULL:
        return 0
    drop(guards, guards.oldest)
    return 1


cdef Verification* guards_begin(
    Guards* guards, int64_t producer_id, int16_t epoch, int32_t base_sequence, int bumps_epoch
) noexcept nogil:
    cdef Verification* found = guards_find(guards, producer_id)
    if found == NULL:
        if not has_room(guards) or table_room(&guards.by_id, hash_of_verification) != 0:
            return NULL
        found = <Verification*>calloc(1, sizeof(Verification))
        if found == NULL:
            return NULL
        found.producer_id = producer_id
        found.guard = kb_add_i64(&_last_guard, 1)
        found.epoch = epoch
        found.lowest_sequence = base_sequence
        table_put(&guards.by_id, found, hash_of_id(producer_id))
    else:
        if found.waiting == 0:
            unlink_idle(guards, found)
        if epoch > found.epoch or base_sequence < found.lowest_sequence and epoch == found.epoch:
            found.epoch = epoch
            found.lowest_sequence = base_sequence
    found.waiting += 1
    found.was_idle = 0
    if epoch == found.epoch:
        found.bumps_epoch = bumps_epoch
    return found


cdef void guards_let_go(
    Guards* guards, int64_t producer_id, int64_t guard, int refused
) noexcept nogil:
    cdef Verification* found = guards_find(guards, producer_id)
    if found == NULL or found.guard != guard or found.waiting == 0:
        return
    if found.waiting == 1 and refused:
        drop(guards, found)
        return
    found.waiting -= 1
    if found.waiting == 0:
        linked_append(&guards.oldest, &guards.newest, found, &found.older,
                      "guards: nothing is after the newest idle one")


cdef int guards_wait(const Guards* guards, int64_t producer_id) noexcept nogil:
    cdef const Verification* found = guards_find(guards, producer_id)
    return found != NULL and found.waiting > 0


cdef void guards_end(Guards* guards, int64_t producer_id) noexcept nogil:
    cdef Verification* found = guards_find(guards, producer_id)
    if found != NULL:
        drop(guards, found)


cdef void guards_end_by_marker(
    Guards* guards, int64_t producer_id, int16_t epoch
) noexcept nogil:
    cdef Verification* found = guards_find(guards, producer_id)
    if found != NULL and not (found.bumps_epoch and found.epoch == epoch):
        drop(guards, found)


cdef void guards_expire(Guards* guards) noexcept nogil:
    cdef Verification* idle
    while guards.oldest != NULL and guards.oldest.was_idle:
        drop(guards, guards.oldest)
    idle = guards.oldest
    while idle != NULL:
        idle.was_idle = 1
        idle = idle.newer
    if guards.by_id.count == 0:
        table_free(&guards.by_id)


cdef void guards_clear(Guards* guards) noexcept nogil:
    cdef int64_t place
    if guards.by_id.places != NULL:
        for place in range(<int64_t>guards.by_id.mask + 1):
            free(guards.by_id.places[place])
    table_free(&guards.by_id)
    guards.oldest = NULL
    guards.newest = NULL
