# cython: language_level=3
"""Who leads a partition that this broker does not serve, and where that node is (KIP-951).

Produce from version 10 and Fetch from version 16 tell it beside NOT_LEADER_OR_FOLLOWER (Fetch also
beside FENCED_LEADER_EPOCH), so that a client goes on there without asking Metadata first. All of it
is tagged fields, and is there only when it says something. Nothing here is on the way of an answer
without such an error.

Called inside the snapshot, so the view cannot go. A node's address is the one that Metadata shows.
Threads: the worker's own; the partition's lock for its leader.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memmove

from kbroker.core._atomics cimport kb_load_ptr
from kbroker.protocol._cursor cimport (
    put_count,
    put_i32,
    put_no_tags,
    put_string,
    put_uvarint,
)
from kbroker.replica._metadata_view cimport (
    MetadataView,
    ViewAddress,
    ViewBroker,
    ViewPartition,
    ViewTopic,
    view_address,
    view_broker,
)
from kbroker.replica._partition cimport partition_lock, partition_unlock
from kbroker.replica._topic_index cimport topic_place_by_id, topic_place_by_name
from kbroker.engine.apis._metadata_answer cimport HOST_BYTES, NO_NODE, own_address

cdef enum:
    NODE_ENDPOINTS_TAG = 0
    LEADER_BYTES = 9              # id, epoch, the end of its own tags
    NODE_BYTES = 24               # of one, without host and rack
    UVARINT_BYTES_MAX = 5


cdef inline MetadataView* _view(HotWorker* worker) noexcept nogil:
    if worker.context.published == NULL:
        return NULL
    return <MetadataView*>kb_load_ptr(<void**>worker.context.published)


cdef void _find(
    HotWorker* worker, const AskedPartition* asked, int32_t* leader, int32_t* epoch,
) noexcept nogil:
    cdef MetadataView* view = _view(worker)
    cdef ViewPartition* known
    cdef ViewTopic* topic = NULL
    leader[0] = NO_NODE
    epoch[0] = -1
    if asked.partition != NULL:
        partition_lock(asked.partition)
        leader[0] = asked.partition.leader_id
        epoch[0] = asked.partition.leader_epoch
        partition_unlock(asked.partition)
        return
    if view == NULL:
        return
    if asked.topic_id != NULL:
        topic = <ViewTopic*>topic_place_by_id(&view.index, asked.topic_id)[0]
    elif asked.name != NULL:
        topic = <ViewTopic*>topic_place_by_name(
            &view.index, asked.name, asked.name_length)[0]
    if topic != NULL and 0 <= asked.index < topic.partition_count:
        known = &topic.partitions[asked.index]
        leader[0] = known.leader
        epoch[0] = known.leader_epoch


cdef void _add(NamedLeaders* named, int32_t leader) noexcept nogil:
    cdef int i
    for i in range(named.count):
        if named.ids[i] == leader:
            return
    if leader != NO_NODE and named.count < NAMED_LEADERS_MAX:
        named.ids[named.count] = leader
        named.count += 1


cdef uint8_t* put_leader(
    uint8_t* at, int tag, HotWorker* worker, const AskedPartition* asked, NamedLeaders* named,
) noexcept nogil:
    """The tagged fields that end a partition: its leader, or none if that is unknown."""
    cdef int32_t leader, epoch
    _find(worker, asked, &leader, &epoch)
    if leader == NO_NODE and epoch < 0:
        return put_no_tags(at, 1)
    _add(named, leader)
    at = put_uvarint(at, 1)
    at = put_uvarint(at, <uint32_t>tag)
    at = put_uvarint(at, LEADER_BYTES)
    at = put_i32(at, leader)
    at = put_i32(at, epoch)
    return put_no_tags(at, 1)


cdef size_t nodes_bound(HotWorker* worker, NamedLeaders* named) noexcept nogil:
    """The most bytes that `put_nodes` takes, also if another view is published before that."""
    cdef MetadataView* view = _view(worker)
    cdef size_t bound = 4 * UVARINT_BYTES_MAX + NODE_BYTES + HOST_BYTES
    bound += <size_t>worker.context.own.host_bytes_max
    named.view = view
    if view != NULL:
        bound += view.broker_text_bytes + NODE_BYTES * <size_t>view.broker_count
    return bound


cdef ViewBroker* _broker(
    MetadataView* view, HotWorker* worker, Channel* channel, int32_t node_id
) noexcept nogil:
    # NULL: it is not alive, or not for clients of this listener.
    cdef ViewBroker* broker
    if view == NULL:
        return NULL
    broker = view_broker(view, node_id)
    if broker == NULL or node_id == worker.context.own.node_id:
        return broker
    return broker if view_address(view, broker, channel.listener) != NULL else NULL


cdef uint8_t* _put_node(
    uint8_t* at, HotWorker* worker, Channel* channel, ViewBroker* broker,
) noexcept nogil:
    cdef char[HOST_BYTES] text
    cdef ViewAddress* address
    cdef const uint8_t* host
    cdef int32_t host_length, port
    if broker.node_id == worker.context.own.node_id:
        own_address(worker, channel, text, &host, &host_length, &port)
    else:
        address = &broker.addresses[channel.listener]
        host, host_length, port = address.host, address.host_length, address.port
    at = put_i32(at, broker.node_id)
    at = put_string(at, 1, host, host_length)
    at = put_i32(at, port)
    at = put_string(at, 1, broker.rack, broker.rack_length)
    return put_no_tags(at, 1)


cdef uint8_t* put_nodes(
    uint8_t* at, HotWorker* worker, Channel* channel, const NamedLeaders* named,
) noexcept nogil:
    """The tagged fields that end an answer: the nodes of the leaders it named, those alive."""
    cdef MetadataView* view = named.view
    cdef uint8_t* start
    cdef uint8_t* body
    cdef uint8_t* end
    cdef ViewBroker* broker
    cdef int alive = 0
    cdef int i
    if channel.listener < <unsigned>worker.context.own.listener_count:
        for i in range(named.count):
            alive += _broker(view, worker, channel, named.ids[i]) != NULL
    if alive == 0:
        return put_no_tags(at, 1)
    at = put_uvarint(at, 1)
    start = put_uvarint(at, NODE_ENDPOINTS_TAG)
    body = start + UVARINT_BYTES_MAX
    end = put_count(body, 1, alive)
    for i in range(named.count):
        broker = _broker(view, worker, channel, named.ids[i])
        if broker != NULL:
            end = _put_node(end, worker, channel, broker)
    # Its size comes first, and is known now.
    at = put_uvarint(start, <uint32_t>(end - body))
    memmove(at, body, <size_t>(end - body))
    return at + (end - body)
