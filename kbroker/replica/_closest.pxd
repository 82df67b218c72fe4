# cython: language_level=3
"""From which replica a consumer should read (KIP-392): the one of its rack, if there is one."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.log.engine._types cimport Patience
from kbroker.replica._metadata_view cimport MetadataView
from kbroker.replica._partition cimport Partition, ReplicaOffsets


cdef enum:
    NO_PREFERRED_REPLICA = -1


# Where a consumer is, as its fetch says, and which brokers it can reach.
cdef struct ReaderPlace:
    const uint8_t* rack
    int64_t rack_length           # 0: it is not asked where to read
    uint32_t listener             # on which it came
    MetadataView* view            # the brokers as they are published; NULL: none is known


# As leader: the broker from which a consumer at that place should read on at an offset, with the
# offsets to tell it; NO_PREFERRED_REPLICA: from here, or this is not the leader. 0 or
# READ_WOULD_WAIT.
cdef int16_t partition_closest(
    Partition* partition, int64_t offset, const ReaderPlace* place, Patience patience,
    int32_t* broker_id, ReplicaOffsets* offsets
) noexcept nogil
