# cython: language_level=3
"""Verifications of transactions that are under way, one a producer."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from kbroker.core._table cimport Table


cdef enum:
    # Of one partition, a megabyte. Full: the verification that no batch has asked for during
    # GUARD_KEPT_MS, far longer than a batch waits for one, gives way, or the batch is refused.
    GUARDS_MAX = 10_000
    GUARD_KEPT_MS = 300_000


cdef struct Verification:
    Verification* older           # by the last batch that asked for it
    Verification* newer
    int64_t producer_id
    int64_t guard                 # above 0; no other verification of this process has the number
    int64_t asked_ms              # when a batch asked for it last
    int32_t lowest_sequence       # of the batches that wait for it
    int16_t epoch
    int8_t bumps_epoch            # its transactions have an epoch each


cdef struct Guards:
    Table by_id
    Verification* oldest
    Verification* newest


cdef Verification* guards_find(const Guards* guards, int64_t producer_id) noexcept nogil

# The producer's verification, which begins with the first batch that waits. NULL: there are too
# many, or there is no memory.
cdef Verification* guards_begin(
    Guards* guards, int64_t producer_id, int16_t epoch, int32_t base_sequence, int bumps_epoch,
    int64_t now_ms) noexcept nogil

# The batch that it verifies is in the log from now on.
cdef void guards_end(Guards* guards, int64_t producer_id) noexcept nogil
# The same of a marker with that epoch: it leaves the verification of a transaction that has begun
# after the one it ends, and has the same epoch.
cdef void guards_end_by_marker(
    Guards* guards, int64_t producer_id, int16_t epoch) noexcept nogil

cdef void guards_expire(Guards* guards, int64_t before_ms) noexcept nogil
cdef void guards_clear(Guards* guards) noexcept nogil
