# cython: language_level=3
"""The choice of a replica by racks, as Apache Kafka's RackAwareReplicaSelector makes it.

A follower may be chosen that is in sync, holds the offset, is in the consumer's rack and listens
where the consumer can reach it. None is chosen if the leader is in that rack itself. Of several the
one whose log goes furthest; then the one that had all of it last, by the millisecond; then the
highest id.

The position of a follower comes from its fetches, so it is one fetch old. A replica that is about
to join the in-sync set counts as in sync: the high watermark waits for it already. An offset below
the leader's own start is the leader's to refuse, even if followers do not know of the deletion yet:
its records are deleted.

Brokers come from the view that Metadata shows, so this runs inside the snapshot. Lock: the
partition's.
"""

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcmp

from kbroker.core._error_codes cimport NO_ERROR
from kbroker.log.engine._storage cimport lock_to_look_if, unlock_log
from kbroker.log.engine._types cimport READ_WOULD_WAIT
from kbroker.replica._followers cimport Follower
from kbroker.replica._metadata_view cimport ViewBroker, view_address, view_broker

cdef enum:
    NS_PER_MS = 1000000


cdef int _in_rack(const ViewBroker* broker, const ReaderPlace* place) noexcept nogil:
    return (
        broker != NULL
        and broker.rack_length == place.rack_length
        and memcmp(broker.rack, place.rack, <size_t>place.rack_length) == 0
    )


cdef int _may_serve(
    const Follower* follower, int64_t offset, const ReaderPlace* place
) noexcept nogil:
    cdef ViewBroker* broker
    if not follower.in_sync or not follower.log_start_offset <= offset <= follower.log_end_offset:
        return 0
    broker = view_broker(place.view, follower.broker_id)
    return _in_rack(broker, place) and view_address(place.view, broker, place.listener) != NULL


cdef int _is_ahead(const Follower* one, const Follower* other) noexcept nogil:
    if one.log_end_offset != other.log_end_offset:
        return one.log_end_offset > other.log_end_offset
    if one.caught_up_ns // NS_PER_MS != other.caught_up_ns // NS_PER_MS:
        return one.caught_up_ns > other.caught_up_ns
    return one.broker_id > other.broker_id


cdef int32_t _choose_locked(
    const Partition* partition, int64_t offset, const ReaderPlace* place
) noexcept nogil:
    cdef const Follower* follower
    cdef const Follower* best = NULL
    cdef int32_t at
    if not partition.is_leader or not partition.log.online:
        return NO_PREFERRED_REPLICA
    if offset < partition.log.log_start_offset:
        return NO_PREFERRED_REPLICA
    if _in_rack(view_broker(place.view, partition.leader_id), place):
        return NO_PREFERRED_REPLICA
    for at in range(partition.followers.count):
        follower = &partition.followers.list[at]
        if _may_serve(follower, offset, place) and (best == NULL or _is_ahead(follower, best)):
            best = follower
    return best.broker_id if best != NULL else NO_PREFERRED_REPLICA


cdef int16_t partition_closest(
    Partition* partition, int64_t offset, const ReaderPlace* place, Patience patience,
    int32_t* broker_id, ReplicaOffsets* offsets
) noexcept nogil:
    broker_id[0] = NO_PREFERRED_REPLICA
    if place.view == NULL:
        return NO_ERROR
    if not lock_to_look_if(partition.log, patience):
        return READ_WOULD_WAIT
    broker_id[0] = _choose_locked(partition, offset, place)
    offsets.log_start = partition.log.log_start_offset
    offsets.high_watermark = partition.high_watermark.offset
    offsets.last_stable = partition.last_stable.offset
    unlock_log(partition.log)
    return NO_ERROR
