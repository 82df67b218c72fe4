# cython: language_level=3
"""The content of Metadata, as C reads it: one view per published image, constant once published.

    ClusterImage published -> view_new from the view before, with the changed topics -> swapped in
    by TopicTable.show -> engine/apis/_metadata.pyx encodes answers straight from it

A view is an array of topics by name, two hash tables over them, the live brokers and the cluster's
id. Topics are shared between views, so a new one copies pointers. It is a structure of its own
beside the snapshot that Produce and Fetch use: that one is published before the image, this one
after it, and a topic whose log does not open is in the image without a leader and not in there.

Memory: a view and the topics that left with it are freed by the publisher once no reader is inside
(the epochs of `_snapshot`). 16 bytes per partition, lists of node ids shared. No lock, no Python.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from kbroker.replica._topic_index cimport (
    topic_index_free, topic_index_init, topic_index_put, topic_key_init)

cdef enum:
    IDS_MIN = 8
    SHORT_LIST_MAX = 126          # its count + 1 is a varint of one byte


# --- topics --------------------------------------------------------------------------------------

cdef ViewTopic* view_topic_new(
    const uint8_t* name, int32_t length, const uint8_t* topic_id, int internal,
    int32_t partition_count,
) noexcept nogil:
    """A topic whose partitions are still to be filled in; NULL: no memory."""
    cdef size_t places = sizeof(ViewPartition) * <size_t>partition_count
    cdef ViewTopic* topic = <ViewTopic*>calloc(
        1, sizeof(ViewTopic) + places + <size_t>length)
    if topic == NULL:
        return NULL
    topic.partitions = <ViewPartition*>(<char*>topic + sizeof(ViewTopic))
    topic_key_init(&topic.key, <uint8_t*>topic.partitions + places, name, length, topic_id)
    topic.partition_count = partition_count
    topic.internal = internal
    return topic


cdef void view_topic_free(ViewTopic* topic) noexcept nogil:
    if topic != NULL:
        free(topic.ids)
        free(topic)


cdef int64_t view_ids_add(ViewTopic* topic, const int32_t* ids, int32_t count) noexcept nogil:
    """A list of node ids for this topic's partitions; its place, or -1: no memory."""
    cdef uint32_t place = topic.ids_count
    cdef uint32_t capacity = topic.ids_capacity
    cdef int32_t* grown
    while capacity < place + 1 + <uint32_t>count:
        capacity = 2 * capacity if capacity > 0 else IDS_MIN
    if capacity != topic.ids_capacity:
        grown = <int32_t*>realloc(topic.ids, sizeof(int32_t) * capacity)
        if grown == NULL:
            return -1
        topic.ids = grown
        topic.ids_capacity = capacity
    topic.ids[place] = count
    if count > 0:
        memcpy(&topic.ids[place + 1], ids, sizeof(int32_t) * <size_t>count)
    topic.ids_count = place + 1 + <uint32_t>count
    if count > SHORT_LIST_MAX:
        topic.long_lists = 1
    return place


# --- views ---------------------------------------------------------------------------------------

cdef int _is_before(ViewTopic* one, ViewTopic* other) noexcept nogil:
    cdef int32_t shared = min(one.key.name_length, other.key.name_length)
    cdef int order = memcmp(one.key.name, other.key.name, <size_t>shared)
    return order < 0 or (order == 0 and one.key.name_length < other.key.name_length)


cdef void _insert(MetadataView* view, ViewTopic* topic) noexcept nogil:
    topic_index_put(&view.index, &topic.key)
    view.topics[view.topic_count] = topic
    view.topic_count += 1
    view.partition_count += topic.partition_count
    view.name_bytes += topic.key.name_length
    view.replica_ids += topic.replica_ids
    view.isr_ids += topic.isr_ids
    view.long_lists |= topic.long_lists


cdef MetadataView* _view_allocate(
    int32_t topic_count, int32_t broker_count, uint32_t listener_count, size_t text_bytes,
) noexcept nogil:
    cdef MetadataView* view = <MetadataView*>calloc(1, sizeof(MetadataView))
    if view == NULL:
        return NULL
    view.topics = <ViewTopic**>calloc(<size_t>topic_count + 1, sizeof(ViewTopic*))
    view.listener_count = listener_count
    view.brokers = <ViewBroker*>calloc(
        1, (sizeof(ViewBroker) + sizeof(ViewAddress) * listener_count) * <size_t>broker_count
        + text_bytes + 1)
    if (topic_index_init(&view.index, topic_count) != 0 or view.topics == NULL
            or view.brokers == NULL):
        view_free(view)
        return NULL
    return view


cdef MetadataView* view_new(
    MetadataView* old, ViewTopic** added, int32_t added_count, int32_t gone_count,
    int32_t broker_count, uint32_t listener_count, size_t text_bytes,
) noexcept nogil:
    """The topics of `old` (or NULL) that are not `gone`, and `added`, which are in order of names.

    Brokers and the cluster's id are for the caller to fill in: there is room for `broker_count`
    and, after them, for their addresses and `text_bytes` of text. NULL: no memory.
    """
    cdef int32_t old_count = old.topic_count if old != NULL else 0
    cdef MetadataView* view = _view_allocate(
        old_count - gone_count + added_count, broker_count, listener_count, text_bytes)
    cdef int32_t kept = 0
    cdef int32_t number = 0
    if view == NULL:
        return NULL
    while kept < old_count or number < added_count:
        if kept < old_count and old.topics[kept].gone:
            kept += 1
        elif kept == old_count or (
            number < added_count and _is_before(added[number], old.topics[kept])
        ):
            _insert(view, added[number])
            number += 1
        else:
            _insert(view, old.topics[kept])
            kept += 1
    return view


cdef void view_free(MetadataView* view) noexcept nogil:
    """Without its topics, which the next view may list."""
    if view == NULL:
        return
    free(view.topics)
    topic_index_free(&view.index)
    free(view.brokers)
    free(view)


cdef void view_free_with_topics(MetadataView* view) noexcept nogil:
    cdef int32_t i
    if view == NULL:
        return
    for i in range(view.topic_count):
        view_topic_free(view.topics[i])
    view_free(view)


# --- reading -------------------------------------------------------------------------------------

cdef ViewBroker* view_broker(MetadataView* view, int32_t node_id) noexcept nogil:
    """The registered broker of this id, NULL if there is none; they are sorted by id."""
    cdef int32_t low = 0
    cdef int32_t high = view.broker_count
    cdef int32_t middle
    while low < high:
        middle = (low + high) // 2
        if view.brokers[middle].node_id == node_id:
            return &view.brokers[middle]
        if view.brokers[middle].node_id < node_id:
            low = middle + 1
        else:
            high = middle
    return NULL
