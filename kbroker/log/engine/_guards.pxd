# cython: language_level=3
"""Verifications of transactions that are under way, one a producer."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from kbroker.core._table cimport Table


cdef enum:
    # Of one partition, a megabyte. Full: the idle one that no batch has waited for the longest
    # gives way, or the batch is refused.
    GUARDS_MAX = 10_000


cdef struct Verification:
    Verification* older           # of those that are idle, by the last batch that waited for it
    Verification* newer
    int64_t producer_id
    int64_t guard                 # above 0; no other verification of this process has the number
    int32_t waiting               # so many requests with its batches; 0: it is idle
    int32_t lowest_sequence       # of the batches that have waited for it
    int16_t epoch
    int8_t bumps_epoch            # its transactions have an epoch each
    int8_t was_idle               # at the last guards_expire()


cdef struct Guards:
    Table by_id
    Verification* oldest          # the idle ones
    Verification* newest


cdef Verification* guards_find(const Guards* guards, int64_t producer_id) noexcept nogil

# The producer's verification, which begins with the first batch that waits; one more request waits
# for it, until guards_let_go(). NULL: there are too many, or there is no memory.
cdef Verification* guards_begin(
    Guards* guards, int64_t producer_id, int16_t epoch, int32_t base_sequence, int bumps_epoch
) noexcept nogil

# A request waits no longer for the verification with that guard, if there still is one. `refused`:
# its batch will not come again.
cdef void guards_let_go(
    Guards* guards, int64_t producer_id, int64_t guard, int refused) noexcept nogil

# Whether a batch of that producer waits, or is about to be appended.
cdef int guards_wait(const Guards* guards, int64_t producer_id) noexcept nogil

# The batch that it verifies is in the log from now on.
cdef void guards_end(Guards* guards, int64_t producer_id) noexcept nogil
# The same of a marker with that epoch: it leaves the verification of a transaction that has begun
# after the one it ends, and has the same epoch.
cdef void guards_end_by_marker(
    Guards* guards, int64_t producer_id, int16_t epoch) noexcept nogil

# Forgets those that have been idle since it was called before.
cdef void guards_expire(Guards* guards) noexcept nogil
cdef void guards_clear(Guards* guards) noexcept nogil
