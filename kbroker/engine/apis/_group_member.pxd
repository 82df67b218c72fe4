# cython: language_level=3
"""The member that asks, in Heartbeat and OffsetCommit; inline, without a compiled module."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from kbroker.coordinator.group._members cimport member_find_locked
from kbroker.coordinator.group._structs cimport Group, Member
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.core._limits cimport TEXT_BYTES_MAX
from kbroker.protocol._cursor cimport Cursor, take_i32, take_string

# In the frame.
cdef struct AskingMember:
    Text group
    int32_t generation
    Text member
    Text instance                 # length -1: none


cdef inline void take_text(Cursor* cursor, int flexible, Text* text) noexcept nogil:
    # A string that may be null.
    cdef int64_t length
    text.at = take_string(cursor, flexible, &length)
    text.length = <int32_t>length
    if length > TEXT_BYTES_MAX:
        cursor.failed = 1


cdef inline void take_asking_member(
    Cursor* cursor, AskingMember* asking, int flexible, int has_instance,
) noexcept nogil:
    take_text(cursor, flexible, &asking.group)
    asking.generation = take_i32(cursor)
    take_text(cursor, flexible, &asking.member)
    asking.instance.at = NULL
    asking.instance.length = -1
    if has_instance:
        take_text(cursor, flexible, &asking.instance)
    if asking.group.length < 0 or asking.member.length < 0:
        cursor.failed = 1


cdef inline int is_ascii(const Text* text) noexcept nogil:
    cdef uint8_t all_bits = 0
    cdef int32_t i
    for i in range(text.length):
        all_bits |= text.at[i]
    return all_bits < 0x80


cdef inline Member* asking_member_locked(
    Group* group, const AskingMember* asking,
) noexcept nogil:
    # The member if it is known, of this generation and with this instance id; else NULL, and Python
    # answers with the reason.
    cdef Member* member
    if group == NULL or not group.published or group.generation != asking.generation:
        return NULL
    member = member_find_locked(group, asking.member.at, asking.member.length)
    if member == NULL:
        return NULL
    if asking.instance.length >= 0 and (
        asking.instance.length != member.instance_length
        or memcmp(
            asking.instance.at, member.id + member.id_length,
            <size_t>asking.instance.length) != 0
    ):
        return NULL
    return member
