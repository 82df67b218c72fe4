# cython: language_level=3
from libc.stdint cimport int32_t, uint8_t

from kbroker.coordinator.group._structs cimport Group, GroupShard, Member
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.runtime._shards cimport shard_for, shard_lock
from kbroker.coordinator.runtime._structs cimport Shard, Shards

# Everything in it is forgotten; its state and partition stay.
cdef void group_shard_clear_locked(Shard* runtime_shard) noexcept nogil
# A bounded number of those tombstones that all replicas have by now go.
cdef void removals_end_locked(GroupShard* shard) noexcept nogil


# The shard of an ASCII group id, not locked; NULL: the topic is not there.
cdef inline GroupShard* group_shard_for(
    Shards* shards, const uint8_t* id, int32_t length,
) noexcept nogil:
    return <GroupShard*>shard_for(shards, id, length)


# Each time it is taken tombstones that all replicas have end, so that a deletion of many offsets is
# not the work of one call. One that is there yet is not in any response.
cdef inline void group_shard_lock(GroupShard* shard) noexcept nogil:
    shard_lock(&shard.base)
    if shard.removals != NULL:
        removals_end_locked(shard)


cdef Group* group_find_locked(GroupShard* shard, const uint8_t* id, int32_t length) noexcept nogil
# NULL: no memory.
cdef Group* group_take_locked(GroupShard* shard, const uint8_t* id, int32_t length) noexcept nogil
# With all it has.
cdef void group_remove_locked(GroupShard* shard, Group* group) noexcept nogil
# If nothing is left of it.
cdef void group_drop_if_bare_locked(GroupShard* shard, Group* group) noexcept nogil

# Python publishes a group. 1: the members are the group's now; -1: no memory.
cdef int group_publish_locked(
    GroupShard* shard, const Text* id, int state, int generation, Member** members, int32_t count
) noexcept nogil
cdef void group_hide_locked(GroupShard* shard, const Text* id) noexcept nogil
