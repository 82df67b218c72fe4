# cython: language_level=3
"""Followers' positions: what moves the high watermark of a partition with more than one replica."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free


cdef Follower* followers_find(const Followers* followers, int32_t broker_id) noexcept nogil:
    cdef int32_t at
    for at in range(followers.count):
        if followers.list[at].broker_id == broker_id:
            return &followers.list[at]
    return NULL


cdef void followers_replace(
    Followers* followers, Follower* fresh, int32_t count, int new_epoch
) noexcept nogil:
    cdef Follower* before
    cdef Follower said
    cdef int32_t at
    for at in range(count):
        said = fresh[at]
        before = followers_find(followers, said.broker_id)
        if new_epoch or before == NULL:
            fresh[at].log_end_offset = -1
            fresh[at].log_start_offset = -1
            fresh[at].caught_up_ns = 0
            fresh[at].fetched_ns = 0
            fresh[at].leader_end_offset = -1
            fresh[at].sent_high_watermark = -1
            fresh[at].broker_epoch = -1
        else:
            fresh[at] = before[0]
            fresh[at].in_sync = said.in_sync
            fresh[at].registered_epoch = said.registered_epoch
    free(followers.list)
    followers.list = fresh
    followers.count = count


cdef void followers_free(Followers* followers) noexcept nogil:
    free(followers.list)
    followers.list = NULL
    followers.count = 0


cdef void follower_note_fetch(
    Follower* follower, int64_t offset, int64_t leader_end_offset, int64_t now_ns
) noexcept nogil:
    if offset >= leader_end_offset:
        follower.caught_up_ns = now_ns
    elif follower.fetched_ns and offset >= follower.leader_end_offset:
        follower.caught_up_ns = max(follower.caught_up_ns, follower.fetched_ns)
    follower.log_end_offset = offset
    follower.fetched_ns = now_ns
    follower.leader_end_offset = leader_end_offset


cdef int followers_keep_up(
    const Followers* followers, int64_t end_offset, int64_t since_ns
) noexcept nogil:
    cdef const Follower* each
    cdef int32_t at
    for at in range(followers.count):
        each = &followers.list[at]
        if not each.in_sync:
            return 0
        if each.log_end_offset < end_offset and each.caught_up_ns < since_ns:
            return 0
    return 1


cdef int64_t followers_low_watermark(
    const Followers* followers, int64_t log_start_offset
) noexcept nogil:
    cdef int64_t low = log_start_offset
    cdef int32_t at
    for at in range(followers.count):
        if followers.list[at].registered_epoch >= 0:
            low = min(low, followers.list[at].log_start_offset)
    return low
