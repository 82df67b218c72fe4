# cython: language_level=3
"""How fast this leader sends to replicas that are out of sync (KIP-73)."""

from libc.stdint cimport int32_t, int64_t

from kbroker.replica._partition cimport Partition

cdef extern from "<stdint.h>" nogil:
    int64_t UNLIMITED "INT64_MAX"


# One of the broker's, for all partitions that are throttled.
cdef struct LeaderThrottle:
    int64_t bytes_per_s           # atomic: leader.replication.throttled.rate
    int64_t free_at_ns            # atomic: when all that was sent is paid for

cdef void leader_throttle_set(LeaderThrottle* throttle, int64_t bytes_per_s) noexcept nogil

# Whether a follower gets no records of a partition now.
cdef int leader_throttle_holds(
    LeaderThrottle* throttle, Partition* partition, int32_t broker_id, int64_t now_ns
) noexcept nogil

# A follower is sent so much of a partition.
cdef void leader_throttle_note(
    LeaderThrottle* throttle, Partition* partition, int32_t broker_id, int64_t size_bytes,
    int64_t now_ns
) noexcept nogil
