# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.group._structs cimport Group, Member, GroupShard


# A group as it was published, as of the time when the lock was held; the members in one allocation,
# each followed by its texts. `Member.id` points into that; to be freed.
cdef struct PublishedMembers:
    int known
    int state
    int generation
    int32_t count
    Member** members


# -1: no memory.
cdef int members_copy_locked(Group* group, PublishedMembers* copied) noexcept nogil
cdef void published_members_free(PublishedMembers* copied) noexcept nogil
cdef Member* member_find_locked(Group* group, const uint8_t* id, int32_t length) noexcept nogil
cdef Member* member_new(
    const uint8_t* id, int32_t length, const uint8_t* instance, int32_t instance_length
) noexcept nogil
# Replaces the table by these, which it takes over, each with the time of its last request.
cdef int members_replace_locked(
    GroupShard* shard, Group* group, Member** members, int32_t count) noexcept nogil
cdef void members_clear_locked(GroupShard* shard, Group* group) noexcept nogil
cdef void member_free(Member* member) noexcept nogil  # NULL: nothing
cdef int64_t member_bytes(Member* member) noexcept nogil
