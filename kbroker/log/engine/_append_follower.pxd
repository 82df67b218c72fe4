# cython: language_level=3
"""The append of a follower: batches as the leader has them."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.log.engine._storage cimport Log


cdef struct Followed:
    int64_t appended_bytes        # of the data given, from its beginning on
    int16_t error                 # why nothing more was appended: a Kafka code
    const char* message           # static text or NULL
    # Not -1: the first batch that is left begins a leader epoch that the log has not noted yet.
    int32_t new_epoch
    int64_t new_epoch_offset
    # Not -1: the log is empty, and its first batch is too far above its only segment's base.
    int64_t begin_again_at


# The bytes of a fetch's answer that are whole batches whose CRC is right, one after the other, up
# to a batch that is not sound or that the answer's bound has cut off. Without a lock. Where already
# the first is not sound `out` has the error.
cdef int64_t followed_bytes(const uint8_t* data, int64_t length, Followed* out) noexcept nogil

# Appends `length` bytes of whole, sound batches with the offsets and epochs that they have; with
# the lock held. Gaps between batches stay. Ends early as `out` says.
cdef void log_append_follower_locked(
    Log* log, const uint8_t* data, int64_t length, int64_t now_ms, Followed* out) noexcept nogil
