# cython: language_level=3
"""The struct sheet of the coordinator's C half: shards, groups, members, offsets."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.replica._partition cimport Partition

cdef enum:
    SHARDS_MAX = 65536            # partitions of __consumer_offsets
    SHARD_NOT_OWNER = 0
    SHARD_LOADING = 1
    SHARD_ACTIVE = 2

    # GroupState of states.py
    GROUP_EMPTY = 0
    GROUP_DEAD = 4
    GROUP_STATES = 5


# What few offsets have: a text, a time of their own to expire at, one that is shown instead.
# Where it is `removed` the entry is a tombstone, which keeps its place till all replicas have it.
cdef struct OffsetExtra:
    int64_t expire_ms             # NO_EXPIRY: none
    OffsetEntry* before           # committed before, while the followers may not have this one
    int64_t below_bytes           # of what is before it, with all that is before that
    int64_t cut_above             # once the high watermark is above it, the lowest is never told
    int32_t length                # of the metadata, which follows
    int8_t removed                # by a tombstone that the followers may not have


cdef struct OffsetEntry:
    int64_t offset
    int64_t log_offset            # of its record; the highest wins
    int64_t commit_ms
    OffsetExtra* extra            # NULL: none of that
    int32_t partition
    int32_t leader_epoch          # -1: not told


cdef struct GroupTopic:
    uint32_t hash
    int32_t name_length
    int32_t count
    int32_t capacity
    OffsetEntry* entries          # by partition, ascending
    int32_t removals              # that point here; it stays as long
    int8_t has_id
    uint8_t topic_id[16]
    uint8_t* name                 # in the same allocation


cdef struct Member:
    int64_t heard_ms              # monotonic; 0: never
    uint32_t hash
    int32_t id_length
    int32_t instance_length       # -1: none
    uint8_t* id                   # in the same allocation, and the instance id behind it


cdef struct Group:
    uint32_t hash
    int32_t id_length
    int8_t shown                  # Python has told state, generation and members
    int8_t commits_of             # of its state, as _state_rows has it
    int16_t heartbeat_error       # the same
    int32_t state
    int32_t generation
    int32_t member_count
    uint32_t member_mask          # of the table; members NULL: there is none
    Member** members
    int32_t topic_count
    uint32_t topic_mask
    GroupTopic** topics
    int64_t offset_count          # without the removed ones
    uint8_t* id                   # in the same allocation


# A tombstone that the followers may not have yet.
cdef struct Removal:
    Removal* next
    Group* group
    GroupTopic* topic
    int64_t log_offset
    int32_t partition


cdef struct Shard:
    pthread_mutex_t lock          # "session" in the lock order
    int32_t index
    int state
    Partition* partition          # one reference, while it is ours
    int64_t writing_since_ns      # atomic: the lock is held over an append; 0: it is not
    int64_t slow_until_ns         # atomic: as its partition had it behind the last append
    int64_t* late_from_ns         # atomic: of its partition's data directory; NULL: never ours
    Group** groups
    uint32_t mask
    int64_t count
    int64_t offset_count
    int64_t bytes
    Removal* removals             # as they were written
    Removal* last_removal


# What a call has appended last, for who answers when the followers have it.
cdef struct Appended:
    int64_t last_offset
    int32_t led_since
    int awaits_followers


cdef struct GroupShards:
    int count                     # atomic; 0: the topic is not there
    Shard** shards                # SHARDS_MAX places, each set once
    int64_t clock_shift_ms        # atomic
    int64_t write_timeout_ms      # how long a write waits for its followers
