# cython: language_level=3
"""The followers of a partition as its leader knows them: from their fetches alone.

Part of a `Partition`, under its lock. A fetch at an offset says that everything below it is in the
follower's log; so a position is one fetch old, and the high watermark is never above the follower's
end.
"""

from libc.stdint cimport int8_t, int32_t, int64_t


cdef struct Follower:
    int32_t broker_id
    # The high watermark waits for it: it is in the in-sync set that the controller has confirmed,
    # or in one that it has been asked for.
    int8_t in_sync
    # Of its registration, as the controller says; -1: not known. A fetch of an older start of it is
    # refused, and so is one of a newer start as long as it is in sync here.
    int64_t registered_epoch
    int64_t log_end_offset        # where its last fetch began; -1: none in this leader epoch
    int64_t log_start_offset      # of its log, as it says with its fetches; -1: it does not
    int64_t caught_up_ns          # when it last had all that there was; 0: never in this epoch
    int64_t fetched_ns            # when its last fetch came
    int64_t leader_end_offset     # of the leader's log, then
    int64_t sent_high_watermark   # the last that it was sent; -1: none in this leader epoch
    int64_t broker_epoch          # of its registration, as it says; -1: it does not


cdef struct Followers:
    Follower* list                # NULL where there are none
    int32_t count

# Takes over `fresh`, of which it reads the first three fields. Who stays keeps his position, but
# for a new leader epoch.
cdef void followers_replace(
    Followers* followers, Follower* fresh, int32_t count, int new_epoch) noexcept nogil
cdef void followers_free(Followers* followers) noexcept nogil
cdef Follower* followers_find(const Followers* followers, int32_t broker_id) noexcept nogil

# A fetch from an offset. A follower is caught up as of now if it asks for the leader's end, and as
# of its last fetch if it asks for the end at that time: so one that always lags a little, because
# records always come, counts as caught up.
cdef void follower_note_fetch(
    Follower* follower, int64_t offset, int64_t leader_end_offset, int64_t now_ns) noexcept nogil

# Whether all are waited for, and each has all that there is or had it at that time or later.
cdef int followers_keep_up(
    const Followers* followers, int64_t end_offset, int64_t since_ns) noexcept nogil

# The least log start of the followers whose brokers are registered, at most `log_start_offset`; -1
# if one of them has not said it in this leader epoch.
cdef int64_t followers_low_watermark(
    const Followers* followers, int64_t log_start_offset) noexcept nogil

# The offset up to which all in sync have the log, not beyond `end_offset`; -1 if one has not
# fetched.
cdef inline int64_t followers_reached(
    const Followers* followers, int64_t end_offset
) noexcept nogil:
    cdef int64_t reached = end_offset
    cdef int32_t at
    for at in range(followers.count):
        if followers.list[at].in_sync and followers.list[at].log_end_offset < reached:
            reached = followers.list[at].log_end_offset
    return reached
