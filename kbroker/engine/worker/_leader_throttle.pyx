# cython: language_level=3
"""The leader's side of a throttled copy; the follower's is `replica/throttle.py`, and counts alike.

A follower that is in sync is never held back: acknowledgements wait for it. One that is not, of a
partition that `leader.replication.throttled.replicas` of its topic names, shares
`leader.replication.throttled.rate` with all others like it. Bytes are paid for after they are sent:
so many bytes keep the rate busy for so long, and until that is over such fetches get no records. A
follower that got nothing for a while has saved up a second at most. Another rate begins with no
debts.

Where the rate is not set this is one compare for each partition of a follower's fetch. Any thread;
locks: the partition's.
"""

from libc.stdint cimport int32_t, int64_t

from kbroker.core._atomics cimport kb_cas_i64, kb_load_i64, kb_store_i64
from kbroker.replica._partition cimport partition_holds_back

cdef enum:
    NS_PER_S = 1000000000


cdef void leader_throttle_set(LeaderThrottle* throttle, int64_t bytes_per_s) noexcept nogil:
    if kb_load_i64(&throttle.bytes_per_s) != bytes_per_s:
        kb_store_i64(&throttle.bytes_per_s, bytes_per_s)
        kb_store_i64(&throttle.free_at_ns, 0)


cdef int leader_throttle_holds(
    LeaderThrottle* throttle, Partition* partition, int32_t broker_id, int64_t now_ns
) noexcept nogil:
    cdef int64_t rate = kb_load_i64(&throttle.bytes_per_s)
    if rate == UNLIMITED or not partition_holds_back(partition, broker_id):
        return 0
    return rate == 0 or kb_load_i64(&throttle.free_at_ns) > now_ns


cdef void leader_throttle_note(
    LeaderThrottle* throttle, Partition* partition, int32_t broker_id, int64_t size_bytes,
    int64_t now_ns
) noexcept nogil:
    cdef int64_t rate = kb_load_i64(&throttle.bytes_per_s)
    cdef int64_t before, cost_ns
    if rate == UNLIMITED or rate == 0 or not partition_holds_back(partition, broker_id):
        return
    cost_ns = <int64_t>(<double>size_bytes * NS_PER_S / <double>rate)
    while True:
        before = kb_load_i64(&throttle.free_at_ns)
        if kb_cas_i64(
            &throttle.free_at_ns, before, max(before, now_ns - NS_PER_S) + cost_ns
        ):
            if kb_load_i64(&throttle.bytes_per_s) != rate:  # set meanwhile: it begins with no debts
                kb_store_i64(&throttle.free_at_ns, 0)
            return
