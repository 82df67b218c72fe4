# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.replica._topic_index cimport TopicIndex, TopicKey


# A partition as Metadata shows it. The two lists are places in the topic's `ids`: a count, then so
# many node ids; equal lists of neighbours are one.
cdef struct ViewPartition:
    int32_t leader                # -1: none
    int32_t leader_epoch
    uint32_t replicas
    uint32_t isr


cdef struct ViewTopic:
    TopicKey key                  # its name is in the same allocation
    int internal
    int gone                      # the publisher's, while it builds the next view
    int32_t partition_count
    ViewPartition* partitions     # in the same allocation
    int32_t* ids
    uint32_t ids_count
    uint32_t ids_capacity
    int64_t replica_ids           # over all partitions, what an answer's size needs
    int64_t isr_ids
    int long_lists                # a list has more ids than one byte can count


# Where clients of one listener reach a broker; `port` -1: they do not.
cdef struct ViewAddress:
    int32_t port
    int32_t host_length
    uint8_t* host


cdef struct ViewBroker:
    int32_t node_id
    int32_t rack_length           # -1: none
    uint8_t* rack
    ViewAddress* addresses        # by listener of this broker


cdef struct MetadataView:
    TopicIndex index              # of ViewTopics
    int32_t topic_count
    ViewTopic** topics            # in the order of their names' bytes
    # Over all topics, for the size of an answer.
    int64_t partition_count
    int64_t name_bytes
    int64_t replica_ids
    int64_t isr_ids
    int long_lists
    int32_t broker_count
    ViewBroker* brokers           # by node id; after them, their addresses and all texts
    uint32_t listener_count       # of each broker's addresses
    size_t broker_text_bytes
    int32_t cluster_id_length
    uint8_t* cluster_id


cdef ViewTopic* view_topic_new(
    const uint8_t* name, int32_t length, const uint8_t* topic_id, int internal,
    int32_t partition_count) noexcept nogil
cdef void view_topic_free(ViewTopic* topic) noexcept nogil
cdef int64_t view_ids_add(ViewTopic* topic, const int32_t* ids, int32_t count) noexcept nogil
cdef MetadataView* view_new(
    MetadataView* old, ViewTopic** added, int32_t added_count, int32_t gone_count,
    int32_t broker_count, uint32_t listener_count, size_t text_bytes) noexcept nogil
cdef void view_free(MetadataView* view) noexcept nogil
cdef void view_free_with_topics(MetadataView* view) noexcept nogil
# NULL: clients of this listener do not reach it.
cdef inline ViewAddress* view_address(
    MetadataView* view, ViewBroker* broker, uint32_t listener
) noexcept nogil:
    if listener >= view.listener_count or broker.addresses[listener].port < 0:
        return NULL
    return &broker.addresses[listener]

cdef ViewBroker* view_broker(MetadataView* view, int32_t node_id) noexcept nogil
