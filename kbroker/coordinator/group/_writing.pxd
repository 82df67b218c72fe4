# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.group._structs cimport Shard
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.log.engine._types cimport Batch

# Who commits offsets: checked again with the lock held under which they are written.
cdef struct Committer:
    Text group
    Text member
    Text instance                 # length -1: none
    int32_t generation            # below 0: of no member
    int checked_twice             # Python has said so twice: C may not know the group or the member


# Appends the batch of these texts (batch_of_records), and what it says of offsets holds in the
# shard. 0, or an error as a coordinator says it; ILLEGAL_GENERATION: the committer (NULL: none) may
# not, or may not any more, and nothing was written. `topic_ids`: NULLs, or what the value of an
# offset has no room for.
cdef int records_write_locked(
    Shard* shard, Batch* batch, const Text* texts, const uint8_t** topic_ids, Py_ssize_t count,
    const Committer* committer,
) noexcept nogil
