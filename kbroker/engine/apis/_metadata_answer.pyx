# cython: language_level=3
"""The answer of a Metadata request, written from a view into one piece of memory.

The bound is computed from sums that the view keeps, without walking partitions; it leaves room for
every replica to be offline. Nothing is kept from answer to answer: ten thousand partitions are
260 KB and cost less to write than to send.

The content follows handlers/metadata_topics.py: a replica whose broker is not registered, or has no
address for clients of this listener, is offline; such a leader is none, and an error; version 0
leaves such replicas out. The node that the client is connected to appears under the address of the
listener, or the one that this connection used. The controller of the answer is any broker of the
list, chosen by the connection's number.

Protocol: MetadataResponse 0-13. Threads: the worker's own; no lock.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport strlen

from kbroker.core._error_codes cimport (
    LEADER_NOT_AVAILABLE,
    LISTENER_NOT_FOUND,
    REPLICA_NOT_AVAILABLE,
)
from kbroker.core._figures cimport kb_count
from kbroker.net._request cimport ANSWER_BYTES_MAX, answer_bytes, answer_reserve
from kbroker.net._types cimport ACTION_SEND, Channel
from kbroker.protocol._cursor cimport (
    kb_put_u32,
    put_count,
    put_i16,
    put_i32,
    put_i8,
    put_no_tags,
    put_raw,
    put_string,
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
from kbroker.engine.worker._answers cimport cold_push
from kbroker.engine.worker._charges cimport worker_answer_charged
from kbroker.engine.worker._context cimport REASON_METADATA, HotWorker, OwnAddress
from kbroker.engine.apis._metadata_plan cimport (
    CLUSTER_OPERATIONS_TO,
    OPERATIONS_FROM,
    TOPIC_IDS_FROM,
    AnsweredTopic,
    MetadataPlan,
)

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* address, char* text, unsigned size)
    int AF_INET
    int AF_INET6

cdef extern from "debug.h" nogil:
    void kb_assert(int condition, const char* text)

cdef enum:
    INTERNAL_FROM = 1             # and the rack, and the controller
    CLUSTER_ID_FROM = 2
    THROTTLE_FROM = 3
    OFFLINE_FROM = 5
    LISTENER_ERROR_FROM = 6
    LEADER_EPOCH_FROM = 7
    TOP_LEVEL_ERROR_FROM = 13

    # What an ACL could allow, as bits of the operations' codes (handlers/metadata.py).
    TOPIC_OPERATIONS = 0xdf8      # 3 to 8, 10 and 11
    CLUSTER_OPERATIONS = 0x1fa0   # 5, 7 to 12

    HEAD_BYTES = 96               # size, header, throttle time, counts, controller, the last fields
    BROKER_BYTES = 24             # without its texts
    TOPIC_BYTES = 40              # without its name
    PARTITION_BYTES = 15          # without its three lists

cdef int32_t OPERATIONS_NOT_ASKED = -2147483648


# Where an answer is being written, and the last list of replicas looked at.
cdef struct Writing:
    uint8_t* at
    MetadataView* view
    int32_t own_id
    uint32_t listener
    int version
    int flexible
    ViewTopic* topic
    uint32_t checked              # a place in topic.ids
    int offline                   # how many of that list


# --- the size ------------------------------------------------------------------------------------

cdef int64_t metadata_answer_bound(HotWorker* worker, MetadataPlan* plan) noexcept nogil:
    """At least as many bytes as the answer has."""
    cdef MetadataView* view = plan.view
    cdef ViewTopic* topic
    cdef int64_t topics = plan.count
    cdef int64_t name_bytes = 0
    cdef int64_t partitions = 0
    cdef int64_t ids = 0
    cdef int long_lists = 0
    cdef int64_t count_bytes
    cdef int32_t i
    if plan.all_topics:
        topics = view.topic_count
        name_bytes = view.name_bytes
        partitions = view.partition_count
        ids = 2 * view.replica_ids + view.isr_ids
        long_lists = view.long_lists
    for i in range(plan.count):
        topic = plan.topics[i].topic
        if topic == NULL:
            name_bytes += plan.topics[i].name_length
            continue
        name_bytes += topic.key.name_length
        partitions += topic.partition_count
        ids += 2 * topic.replica_ids + topic.isr_ids
        long_lists |= topic.long_lists
    count_bytes = 1 if plan.flexible and not long_lists else 5
    return (
        HEAD_BYTES + view.cluster_id_length
        + HOST_BYTES + worker.context.own.host_bytes_max
        + BROKER_BYTES * (<int64_t>view.broker_count + 1) + <int64_t>view.broker_text_bytes
        + TOPIC_BYTES * topics + name_bytes
        + (PARTITION_BYTES + 3 * count_bytes) * partitions + 4 * ids
    )


# --- brokers -------------------------------------------------------------------------------------

cdef void _put_broker(
    Writing* out, int32_t node_id, const uint8_t* host, int32_t host_length, int32_t port,
    ViewBroker* broker,
) noexcept nogil:
    cdef uint8_t* at = put_i32(out.at, node_id)
    at = put_string(at, out.flexible, host, host_length)
    at = put_i32(at, port)
    if out.version >= INTERNAL_FROM:
        if broker == NULL:
            at = put_string(at, out.flexible, NULL, -1)
        else:
            at = put_string(at, out.flexible, broker.rack, broker.rack_length)
    out.at = put_no_tags(at, out.flexible)


cdef void own_address(
    HotWorker* worker, Channel* channel, char* text, const uint8_t** host, int32_t* host_length,
    int32_t* port,
) noexcept nogil:
    """As the peer of this connection should see this node; kbroker/server/advertised.py.

    `text` is HOST_BYTES of the caller's, where the host may be written.
    """
    cdef OwnAddress* own = &worker.context.own.addresses[channel.listener]
    host[0] = own.host
    host_length[0] = own.host_length
    port[0] = own.port
    if own.host != NULL:
        return
    text[0] = 0
    if channel.is_ipv6:
        inet_ntop(AF_INET6, channel.local_address, text, HOST_BYTES)
    else:
        inet_ntop(AF_INET, channel.local_address + 12, text, HOST_BYTES)
    host[0] = <const uint8_t*>text
    host_length[0] = <int32_t>strlen(text)
    port[0] = channel.local_port


cdef void _put_own(
    Writing* out, HotWorker* worker, Channel* channel, ViewBroker* registered,
) noexcept nogil:
    cdef char[HOST_BYTES] text
    cdef const uint8_t* host
    cdef int32_t host_length, port
    own_address(worker, channel, text, &host, &host_length, &port)
    _put_broker(out, worker.context.own.node_id, host, host_length, port, registered)


cdef int32_t _put_brokers(Writing* out, HotWorker* worker, Channel* channel) noexcept nogil:
    # All that this listener's clients reach, and this node in any case; answers with the one to
    # show as controller.
    cdef MetadataView* view = out.view
    cdef int32_t own_id = worker.context.own.node_id
    cdef ViewBroker* own = NULL
    cdef ViewBroker* broker
    cdef ViewAddress* address
    cdef int32_t controller = own_id
    cdef int32_t count = 1
    cdef int32_t chosen
    cdef int32_t i
    for i in range(view.broker_count):
        broker = &view.brokers[i]
        if broker.node_id == own_id:
            own = broker
        else:
            count += view_address(view, broker, channel.listener) != NULL
    chosen = <int32_t>(channel.connection_id % <unsigned>count)
    out.at = put_count(out.at, out.flexible, count)
    for i in range(view.broker_count):
        broker = &view.brokers[i]
        address = view_address(view, broker, channel.listener)
        if broker == own:
            _put_own(out, worker, channel, broker)
        elif address != NULL:
            _put_broker(
                out, broker.node_id, address.host, address.host_length, address.port, broker)
        else:
            continue
        if chosen == 0:
            controller = broker.node_id
        chosen -= 1
    if own == NULL:
        _put_own(out, worker, channel, NULL)
    return controller


# --- topics --------------------------------------------------------------------------------------

cdef int16_t _unreached(Writing* out, int32_t node_id) noexcept nogil:
    # Why clients of this listener do not reach a broker as a leader; 0: they do.
    cdef ViewBroker* broker = view_broker(out.view, node_id)
    if broker == NULL:
        return LEADER_NOT_AVAILABLE
    if node_id == out.own_id or view_address(out.view, broker, out.listener) != NULL:
        return 0
    return LISTENER_NOT_FOUND if out.version >= LISTENER_ERROR_FROM else LEADER_NOT_AVAILABLE


cdef int _count_offline(Writing* out, uint32_t place) noexcept nogil:
    # Of a list of replicas; those of neighbours are mostly the same list.
    cdef int32_t* ids = out.topic.ids + place
    cdef int32_t i
    if place != out.checked or out.offline < 0:
        out.checked = place
        out.offline = 0
        for i in range(1, ids[0] + 1):
            out.offline += _unreached(out, ids[i]) != 0
    return out.offline


cdef uint8_t* _put_ids(uint8_t* at, int flexible, const int32_t* ids) noexcept nogil:
    cdef int32_t i
    at = put_count(at, flexible, ids[0])
    for i in range(1, ids[0] + 1):
        at = put_i32(at, ids[i])
    return at


cdef uint8_t* _put_chosen_ids(
    Writing* out, uint8_t* at, const int32_t* ids, int online,
) noexcept nogil:
    # Of a list those whose broker is reached, or those whose is not.
    cdef int32_t count = 0
    cdef int32_t i
    for i in range(1, ids[0] + 1):
        count += (_unreached(out, ids[i]) == 0) == online
    at = put_count(at, out.flexible, count)
    for i in range(1, ids[0] + 1):
        if (_unreached(out, ids[i]) == 0) == online:
            at = put_i32(at, ids[i])
    return at


cdef uint8_t* _put_partition(
    Writing* out, uint8_t* at, ViewPartition* partition, int32_t index, int16_t leader_error,
) noexcept nogil:
    cdef const int32_t* replicas = out.topic.ids + partition.replicas
    cdef const int32_t* isr = out.topic.ids + partition.isr
    cdef int offline = _count_offline(out, partition.replicas)
    cdef int16_t error = leader_error
    if error == 0 and offline > 0 and out.version < INTERNAL_FROM:
        error = REPLICA_NOT_AVAILABLE
    at = put_i16(at, error)
    at = put_i32(at, index)
    at = put_i32(at, partition.leader if leader_error == 0 else NO_NODE)
    if out.version >= LEADER_EPOCH_FROM:
        at = put_i32(at, partition.leader_epoch)
    if offline > 0 and out.version < INTERNAL_FROM:
        at = _put_chosen_ids(out, at, replicas, 1)
        return _put_chosen_ids(out, at, isr, 1)
    at = _put_ids(at, out.flexible, replicas)
    at = _put_ids(at, out.flexible, isr)
    if out.version >= OFFLINE_FROM:
        if offline > 0:
            at = _put_chosen_ids(out, at, replicas, 0)
        else:
            at = put_count(at, out.flexible, 0)
    return put_no_tags(at, out.flexible)


cdef void _put_topic(Writing* out, ViewTopic* topic, int32_t operations) noexcept nogil:
    cdef uint8_t* at = put_i16(out.at, 0)
    cdef int32_t leader = NO_NODE
    cdef int16_t leader_error = 0
    cdef int32_t index
    out.topic = topic
    out.offline = -1
    at = put_string(at, out.flexible, topic.key.name, topic.key.name_length)
    if out.version >= TOPIC_IDS_FROM:
        at = put_raw(at, topic.key.topic_id, 16)
    if out.version >= INTERNAL_FROM:
        at = put_i8(at, topic.internal)
    at = put_count(at, out.flexible, topic.partition_count)
    for index in range(topic.partition_count):
        if index == 0 or topic.partitions[index].leader != leader:
            leader = topic.partitions[index].leader
            leader_error = _unreached(out, leader)
        at = _put_partition(out, at, &topic.partitions[index], index, leader_error)
    if out.version >= OPERATIONS_FROM:
        at = put_i32(at, operations)
    out.at = put_no_tags(at, out.flexible)


cdef void _put_missing(Writing* out, AnsweredTopic* asked, int32_t operations) noexcept nogil:
    cdef uint8_t* at = put_i16(out.at, asked.error)
    if asked.topic_id != NULL:
        # By id there is no name, and nothing is said about what may be done with it.
        at = put_string(at, out.flexible, NULL, -1)
        at = put_raw(at, asked.topic_id, 16)
        operations = OPERATIONS_NOT_ASKED
    else:
        at = put_string(at, out.flexible, asked.name, asked.name_length)
        if out.version >= TOPIC_IDS_FROM:
            at = put_i32(put_i32(put_i32(put_i32(at, 0), 0), 0), 0)
    if out.version >= INTERNAL_FROM:
        at = put_i8(at, 0)
    at = put_count(at, out.flexible, 0)
    if out.version >= OPERATIONS_FROM:
        at = put_i32(at, operations)
    out.at = put_no_tags(at, out.flexible)


cdef void _put_topics(Writing* out, MetadataPlan* plan) noexcept nogil:
    cdef int32_t operations = OPERATIONS_NOT_ASKED
    cdef int32_t i
    if plan.topic_operations:
        operations = TOPIC_OPERATIONS
    if plan.all_topics:
        out.at = put_count(out.at, out.flexible, out.view.topic_count)
        for i in range(out.view.topic_count):
            _put_topic(out, out.view.topics[i], operations)
        return
    out.at = put_count(out.at, out.flexible, plan.count)
    for i in range(plan.count):
        if plan.topics[i].topic != NULL:
            _put_topic(out, plan.topics[i].topic, operations)
        else:
            _put_missing(out, &plan.topics[i], operations)


# --- the whole -----------------------------------------------------------------------------------

cdef void _put_answer(Writing* out, HotWorker* worker, MetadataPlan* plan) noexcept nogil:
    # After the size.
    cdef int32_t controller
    out.at = put_i32(out.at, plan.correlation_id)
    out.at = put_no_tags(out.at, plan.flexible)
    if plan.version >= THROTTLE_FROM:
        out.at = put_i32(out.at, 0)
    controller = _put_brokers(out, worker, plan.request.channel)
    if plan.version >= CLUSTER_ID_FROM:
        out.at = put_string(
            out.at, plan.flexible, out.view.cluster_id, out.view.cluster_id_length)
    if plan.version >= INTERNAL_FROM:
        out.at = put_i32(out.at, controller)
    _put_topics(out, plan)
    if OPERATIONS_FROM <= plan.version <= CLUSTER_OPERATIONS_TO:
        if plan.cluster_operations:
            out.at = put_i32(out.at, CLUSTER_OPERATIONS)
        else:
            out.at = put_i32(out.at, OPERATIONS_NOT_ASKED)
    if plan.version >= TOP_LEVEL_ERROR_FROM:
        out.at = put_i16(out.at, 0)
    out.at = put_no_tags(out.at, plan.flexible)


cdef void metadata_answer(HotWorker* worker, MetadataPlan* plan, int64_t bound) noexcept nogil:
    """Answers a planned request; without memory for it Python tries, which may close."""
    cdef uint8_t* head = NULL
    cdef Writing out
    if bound <= ANSWER_BYTES_MAX:
        head = answer_reserve(plan.request, <uint32_t>bound, 1)
    if head == NULL:
        cold_push(worker, plan.request, REASON_METADATA)
        return
    out.at = head + 4
    out.view = plan.view
    out.own_id = worker.context.own.node_id
    out.listener = plan.request.channel.listener
    out.version = plan.version
    out.flexible = plan.flexible
    _put_answer(&out, worker, plan)
    kb_assert(out.at - head <= bound, "a Metadata answer is longer than its bound")
    kb_put_u32(head, <uint32_t>(out.at - head - 4))
    answer_bytes(plan.request, head, out.at - head)
    plan.request.action = ACTION_SEND
    kb_count(&worker.metadata_requests, 1)
    kb_count(&worker.metadata_bytes, out.at - head)
    worker_answer_charged(worker, plan.request)
