# cython: language_level=3
"""The struct sheet of the runtime's C half: partitions of an internal topic, for any machine."""

from libc.stdint cimport int32_t, int64_t

from kbroker.coordinator.runtime._batches cimport Text
from kbroker.core._sync cimport pthread_mutex_t
from kbroker.replica._partition cimport Partition

cdef enum:
    SHARDS_MAX = 65536            # partitions of an internal topic
    SHARD_NOT_OWNER = 0
    SHARD_LOADING = 1
    SHARD_ACTIVE = 2


# The effect of a record on a machine's memory in C.
cdef enum:
    APPLIED = 1
    FOR_PYTHON = 0                # it is not of those that C applies, or cannot be read
    NO_MEMORY = -1


# A partition of an internal topic. A machine with memory in C has a struct for each of which this
# is the first member; all of it is under the lock.
cdef struct Shard:
    pthread_mutex_t lock          # "session" in the lock order
    int32_t index
    int state                     # atomic
    Partition* partition          # one reference, while this broker leads it
    int64_t writing_since_ns      # atomic: the lock is held over an append; 0: it is not
    int64_t slow_until_ns         # atomic: as its partition had it after the last append
    int64_t* late_from_ns         # atomic: of its partition's data directory; NULL: never ours
    int64_t term                  # atomic: how often it has begun or ceased to be ours
    int any_size                  # max.message.bytes does not bound its batches
    const ShardKind* kind


# The memory that a machine has in C for a shard, and the effect of its records on that.
cdef struct ShardKind:
    size_t shard_bytes            # of the struct whose first member is the Shard
    # Forgets all of it; the Shard stays as it is. NULL: there is nothing.
    void (*clear_locked)(Shard* shard) noexcept nogil
    # A record of the log, at a load or after an append from Python. NULL: all are Python's.
    int (*apply_locked)(
        Shard* shard, const Text* key, const Text* value, int64_t log_offset) noexcept nogil


cdef struct Shards:
    int count                     # atomic; 0: the topic is not there
    Shard** shards                # SHARDS_MAX places, each set once
    const ShardKind* kind
    int64_t clock_shift_ms        # atomic
    int64_t images_shown          # atomic: how many images of the cluster were published
    int64_t write_timeout_ms      # how long a write waits for its followers
    int any_size                  # as its shards
    int32_t base_sequence         # of the batches that Python writes


# The last record that a call has appended, for the answer that waits for the followers.
cdef struct Appended:
    int64_t last_offset
    int32_t led_since
    int awaits_followers
