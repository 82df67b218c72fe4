# cython: language_level=3
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.coordinator.group._structs cimport GroupShard
from kbroker.coordinator.runtime._batches cimport Records, Text
from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.log.engine._types cimport Batch

# The member that commits offsets: checked again with the lock held under which they are written.
cdef struct Committer:
    Text group
    Text member
    Text instance                 # length -1: none
    int32_t generation            # below 0: of no member
    int in_transaction            # then it may in any state but Dead, and without being a member
    int checked_twice             # Python has said so twice: C may not know the group or the member


# ShardKind.apply_locked of groups.
cdef int offset_record_apply_locked(
    Shard* shard, const Text* key, const Text* value, int64_t log_offset) noexcept nogil

# The batch is of a transaction of this producer from here on. `guard`: of its verification.
cdef void batch_put_producer(
    Batch* batch, int64_t producer_id, int16_t producer_epoch, int64_t guard) noexcept nogil

# Appends a batch of a transaction: what it says of offsets holds with the marker, or never. Errors
# as of commit_write_locked.
cdef int transaction_write_locked(
    GroupShard* shard, Batch* batch, const Committer* committer) noexcept nogil

# Appends the batch of these records, and what it says of offsets holds in the shard. 0, or an error
# as a coordinator says it; ILLEGAL_GENERATION: the committer (NULL: none) may not, or may not any
# more, and nothing was written. `topic_ids`: NULLs, or what the value of an offset has no room for.
cdef int commit_write_locked(
    GroupShard* shard, Batch* batch, const Records* records, const uint8_t** topic_ids,
    const Committer* committer,
) noexcept nogil
