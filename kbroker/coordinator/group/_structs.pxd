# cython: language_level=3
"""The struct sheet of the groups' C half: groups, members, offsets."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.coordinator.runtime._structs cimport Shard

cdef enum:
    # GroupState of states.py
    GROUP_EMPTY = 0
    GROUP_DEAD = 4
    GROUP_STATES = 5


# Parts that few offsets have: a text, an expiry of their own, an earlier commit that is answered
# instead. If `removed` the entry is a tombstone, which keeps its place till all replicas have it.
cdef struct OffsetExtra:
    int64_t expire_ms             # NO_EXPIRY: none
    OffsetEntry* before           # committed before, while the followers may not have this one
    int64_t below_bytes           # of the entry before it, with all those before that
    int64_t cut_above             # with the high watermark above it, the lowest is never answered
    int32_t length                # of the metadata, which follows
    int8_t removed                # by a tombstone that the followers may not have


cdef struct OffsetEntry:
    int64_t offset
    int64_t log_offset            # of its record; the highest wins
    int64_t commit_ms
    OffsetExtra* extra            # NULL: none of that
    int32_t partition
    int32_t leader_epoch          # -1: not given


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
    uint8_t* id                   # in the same allocation, followed by the instance id


# A member of a consumer group whose heartbeat C answers: see _beats.
cdef struct Beat:
    int64_t heard_ms              # monotonic; 0: never by C
    uint64_t peer                 # its client, as `beat_peer` has it
    uint32_t hash
    int32_t generation            # of the group: it holds under no other one
    int32_t epoch                 # the member's
    int32_t id_length
    int32_t instance_length       # -1: none
    uint8_t* id                   # in the same allocation, followed by the instance id


cdef struct Beats:
    int64_t images                # of the cluster that had been published: topics, racks, settings
    int64_t until_ms              # monotonic: when its patterns are looked for
    int32_t interval_ms           # until the next heartbeat
    int32_t count
    uint32_t mask                 # of the table; members NULL: there is none
    Beat** members


cdef struct Group:
    uint32_t hash
    int32_t id_length
    int8_t published              # state, generation and members are set by Python
    int8_t commits_of             # of its state, as _state_rows has it
    int16_t heartbeat_error       # the same
    int32_t state
    int32_t generation
    int32_t member_count
    uint32_t member_mask          # of the table; members NULL: there is none
    Member** members
    Beats* beats                  # NULL: none
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


# A partition of `__consumer_offsets`, and its groups.
cdef struct GroupShard:
    Shard base                    # first: the runtime knows this of it
    Group** groups
    uint32_t mask
    int64_t count
    int64_t offset_count
    int64_t bytes
    Removal* removals             # as they were written
    Removal* last_removal
