# cython: language_level=3
"""The state of one partition's replica; `_partition.pxd` says what it is, and who may change it."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Bound
from kbroker.replica._followers cimport Followers


# A list of the request path's own.
cdef struct Watchers:
    void* first
    void* last


cdef struct Partition:
    int refs                      # atomic
    Log* log                      # one reference
    int32_t partition_index
    uint8_t topic_id[16]
    # Leadership, written under the lock by the replica layer.
    int32_t leader_id             # this broker's id when it leads
    int8_t is_leader
    int8_t begins_epoch           # of a leader: its next one is being written down
    int leader_epoch              # atomic
    int32_t led_since             # the epoch in which this broker became the leader that it is
    int32_t in_sync_count         # of the set that the controller has confirmed, the leader in it
    Followers followers           # of a leader
    int throttled                 # atomic: leader.replication.throttled.replicas names this one
    # What may be read; the offsets are atomic.
    Bound high_watermark
    Bound last_stable
    int high_watermark_is_late    # atomic, as the next: memory does not say where it lies (_late)
    int last_stable_is_late
    # Owned by the request path: the requests that wait for this partition, under the lock.
    Watchers waiting_fetches
    Watchers waiting_produces     # in the order of their offsets
    Watchers waiting_deletions    # of records, in the order of the new starts
    int has_watchers              # atomic; set before the last look, read after an append
    int consumers_waiting         # atomic; of waiting_fetches
    int followers_lingering       # atomic; of these: followers' that linger (ADR 36)
    int64_t awaited_end           # atomic: the offset after the last one that a write waits for
    int advanced                  # atomic: in a worker's list of those that followers moved
    Partition* next_advanced      # there
    # Counters, atomic.
    int64_t refused_produces      # batches answered with an error
    int64_t rejected_bytes        # of those that were too large
    int64_t fetches               # reads for fetch requests
    int64_t refused_fetches
    int64_t fetched_bytes
