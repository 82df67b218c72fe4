# cython: language_level=3
"""What C answers of members of consumer groups; see _beats.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kbroker.coordinator.group._structs cimport Beat, Group, GroupShard
from kbroker.coordinator.runtime._batches cimport Text

# A ConsumerGroupHeartbeat in which nothing is said to change.
cdef struct AskedBeat:
    Text group
    Text member
    int32_t epoch
    Text instance                 # length -1: none
    uint64_t peer


# A client by its id (length <= 0: none) and address, as one hash.
cdef uint64_t beat_peer(
    const uint8_t* client_id, int64_t length, const uint8_t* address, int is_ipv6) noexcept nogil

cdef Beat* beat_find_locked(Group* group, const uint8_t* id, int32_t length) noexcept nogil
# The member's, with this instance id; its other fields stay, or are 0. NULL: no memory.
cdef Beat* beat_take_locked(
    GroupShard* shard, Group* group, const Text* id, const Text* instance) noexcept nogil
cdef void beat_forget_locked(GroupShard* shard, Group* group, const Text* id) noexcept nogil
cdef void beats_clear_locked(GroupShard* shard, Group* group) noexcept nogil
cdef void beats_free(Group* group) noexcept nogil
# As they are counted in the shard.
cdef int64_t beats_bytes(Group* group) noexcept nogil

# The interval to answer with, and the member's session begins now; -1: Python decides. `images`:
# how many images of the cluster have been published.
cdef int32_t beat_renew_locked(
    Group* group, const AskedBeat* asked, int64_t images, int64_t now_ms) noexcept nogil
