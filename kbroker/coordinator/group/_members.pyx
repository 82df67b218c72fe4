# cython: language_level=3
"""The members of a group as Python has published them, each with the time of its last request.

A copy: Python decides, this repeats. A member costs some 40 bytes with its ids. The shard's lock is
held. -1 or NULL: no memory, and what there was stays.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.core._live_objects cimport LIVE_MEMBERS, live_add
from kbroker.core._name_hash cimport name_hash
from kbroker.core._require cimport require_count
from kbroker.coordinator.group._structs cimport Group, Member, GroupShard
from kbroker.coordinator.group._table cimport TABLE_MIN, table_put
from kbroker.core._live_objects cimport LIVE_MEMBERS, live_add
from kbroker.core._name_hash cimport name_hash


cdef int64_t member_bytes(Member* member) noexcept nogil:
    if member == NULL:
        return 0
    return <int64_t>sizeof(Member) + member.id_length + (
        member.instance_length if member.instance_length > 0 else 0)


cdef Member* member_new(
    const uint8_t* id, int32_t length, const uint8_t* instance, int32_t instance_length,
) noexcept nogil:
    cdef int32_t rest = instance_length if instance_length > 0 else 0
    cdef Member* member = <Member*>calloc(
        1, sizeof(Member) + <size_t>length + <size_t>rest)
    if member == NULL:
        return NULL
    member.id = <uint8_t*>member + sizeof(Member)
    member.id_length = length
    member.instance_length = instance_length
    member.hash = name_hash(id, length)
    memcpy(member.id, id, <size_t>length)
    if rest > 0:
        memcpy(member.id + length, instance, <size_t>rest)
    live_add(LIVE_MEMBERS, 1)
    return member


cdef void member_free(Member* member) noexcept nogil:
    if member != NULL:
        live_add(LIVE_MEMBERS, -1)
        free(member)


cdef Member* member_find_locked(Group* group, const uint8_t* id, int32_t length) noexcept nogil:
    cdef uint32_t wanted
    cdef uint32_t place
    cdef Member* member
    if group.members == NULL:
        return NULL
    wanted = name_hash(id, length)
    place = wanted & group.member_mask
    while True:
        member = group.members[place]
        if member == NULL:
            return NULL
        if (
            member.hash == wanted and member.id_length == length
            and memcmp(member.id, id, <size_t>length) == 0
        ):
            return member
        place = (place + 1) & group.member_mask


cdef void members_clear_locked(GroupShard* shard, Group* group) noexcept nogil:
    cdef uint32_t place
    if group.members == NULL:
        return
    for place in range(group.member_mask + 1):
        shard.bytes = require_count(shard.bytes - member_bytes(group.members[place]),
                                    "shard: its members' bytes are counted")
        member_free(group.members[place])
    free(group.members)
    group.members = NULL
    group.member_mask = 0
    group.member_count = 0


cdef int members_replace_locked(
    GroupShard* shard, Group* group, Member** members, int32_t count,
) noexcept nogil:
    cdef uint32_t capacity = TABLE_MIN
    cdef Member** fresh
    cdef Member* known
    cdef int32_t i
    while 4 * <int64_t>count > 3 * <int64_t>capacity:
        capacity *= 2
    fresh = <Member**>calloc(capacity, sizeof(Member*))
    if fresh == NULL:
        return -1
    for i in range(count):
        known = member_find_locked(group, members[i].id, members[i].id_length)
        if known != NULL:
            members[i].heard_ms = known.heard_ms
        table_put(<void**>fresh, capacity - 1, members[i], members[i].hash)
        shard.bytes += member_bytes(members[i])
    members_clear_locked(shard, group)
    group.members = fresh
    group.member_mask = capacity - 1
    group.member_count = count
    return 0


cdef int members_copy_locked(Group* group, PublishedMembers* copied) noexcept nogil:
    cdef uint32_t place
    cdef Member* member
    copied.known = group != NULL and group.published
    copied.count = 0
    copied.members = NULL
    if not copied.known:
        return 0
    copied.state = group.state
    copied.generation = group.generation
    copied.members = <Member**>calloc(<size_t>group.member_count + 1, sizeof(Member*))
    if copied.members == NULL:
        return -1
    if group.members == NULL:
        return 0
    for place in range(group.member_mask + 1):
        member = group.members[place]
        if member == NULL:
            continue
        member = member_new(
            member.id, member.id_length, member.id + member.id_length, member.instance_length)
        if member == NULL:
            return -1
        copied.members[copied.count] = member
        copied.count += 1
    return 0


cdef void published_members_free(PublishedMembers* copied) noexcept nogil:
    cdef int32_t i
    for i in range(copied.count):
        member_free(copied.members[i])
    free(copied.members)
    copied.members = NULL
    copied.count = 0
