# cython: language_level=3
"""What Metadata shows, as C reads it: one view per published image, never changed once it is seen.

    ClusterImage published -> view_new from the view before, with what changed -> swapped in by
    TopicTable.show -> requests/_metadata.pyx encodes answers straight from it

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

from kbroker.core._name_hash cimport name_hash

cdef enum:
    CAPACITY_MIN = 64
    IDS_MIN = 8
    SHORT_LIST_MAX = 126          # its count + 1 is a varint of one byte


# --- topics --------------------------------------------------------------------------------------

cdef ShownTopic* shown_topic_new(
    const uint8_t* name, int32_t length, const uint8_t* topic_id, int internal,
    int32_t partition_count,
) noexcept nogil:
    """A topic whose partitions are still to be filled in; NULL: no memory."""
    cdef size_t places = sizeof(ShownPartition) * <size_t>partition_count
    cdef ShownTopic* topic = <ShownTopic*>calloc(
        1, sizeof(ShownTopic) + places + <size_t>length)
    if topic == NULL:
        return NULL
    topic.partitions = <ShownPartition*>(<char*>topic + sizeof(ShownTopic))
    topic.name = <uint8_t*>topic.partitions + places
    memcpy(topic.name, name, <size_t>length)
    memcpy(topic.topic_id, topic_id, 16)
    topic.name_length = length
    topic.name_hash = name_hash(name, length)
    topic.partition_count = partition_count
    topic.internal = internal
    return topic


cdef void shown_topic_free(ShownTopic* topic) noexcept nogil:
    if topic != NULL:
        free(topic.ids)
        free(topic)


cdef int64_t shown_ids_add(ShownTopic* topic, const int32_t* ids, int32_t count) noexcept nogil:
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

cdef int _is_before(ShownTopic* one, ShownTopic* other) noexcept nogil:
    cdef int32_t shared = one.name_length
    cdef int order
    if other.name_length < shared:
        shared = other.name_length
    order = memcmp(one.name, other.name, <size_t>shared)
    return order < 0 or (order == 0 and one.name_length < other.name_length)


cdef void _insert(MetadataView* view, ShownTopic* topic) noexcept nogil:
    cdef uint32_t place = topic.name_hash & view.mask
    while view.by_name[place] != NULL:
        place = (place + 1) & view.mask
    view.by_name[place] = topic
    place = name_hash(topic.topic_id, 16) & view.mask
    while view.by_id[place] != NULL:
        place = (place + 1) & view.mask
    view.by_id[place] = topic
    view.topics[view.topic_count] = topic
    view.topic_count += 1
    view.partition_count += topic.partition_count
    view.name_bytes += topic.name_length
    view.replica_ids += topic.replica_ids
    view.isr_ids += topic.isr_ids
    view.long_lists |= topic.long_lists


cdef MetadataView* _view_allocate(
    int32_t topic_count, int32_t broker_count, uint32_t listener_count, size_t text_bytes,
) noexcept nogil:
    cdef MetadataView* view = <MetadataView*>calloc(1, sizeof(MetadataView))
    cdef uint32_t capacity = CAPACITY_MIN
    while capacity < 2 * <uint32_t>topic_count:
        capacity *= 2
    if view == NULL:
        return NULL
    view.mask = capacity - 1
    view.topics = <ShownTopic**>calloc(<size_t>topic_count + 1, sizeof(ShownTopic*))
    view.by_name = <ShownTopic**>calloc(capacity, sizeof(ShownTopic*))
    view.by_id = <ShownTopic**>calloc(capacity, sizeof(ShownTopic*))
    view.listener_count = listener_count
    view.brokers = <ShownBroker*>calloc(
        1, (sizeof(ShownBroker) + sizeof(ShownAddress) * listener_count) * <size_t>broker_count
        + text_bytes + 1)
    if (
        view.topics == NULL or view.by_name == NULL or view.by_id == NULL
        or view.brokers == NULL
    ):
        view_free(view)
        return NULL
    return view


cdef MetadataView* view_new(
    MetadataView* old, ShownTopic** added, int32_t added_count, int32_t gone_count,
    int32_t broker_count, uint32_t listener_count, size_t text_bytes,
) noexcept nogil:
    """The topics of `old` (or NULL) that are not `gone`, and `added`, which are in order of names.

    Brokers and the cluster's id are for the caller to fill in: there is room for `broker_count`
    and, behind them, for their addresses and `text_bytes` of text. NULL: no memory.
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
    free(view.by_name)
    free(view.by_id)
    free(view.brokers)
    free(view)


cdef void view_free_with_topics(MetadataView* view) noexcept nogil:
    cdef int32_t i
    if view == NULL:
        return
    for i in range(view.topic_count):
        shown_topic_free(view.topics[i])
    view_free(view)


# --- reading -------------------------------------------------------------------------------------

cdef int64_t view_place_by_name(
    MetadataView* view, const uint8_t* name, int32_t length,
) noexcept nogil:
    """The place in `by_name`, or -1."""
    cdef uint32_t wanted = name_hash(name, length)
    cdef uint32_t place = wanted & view.mask
    cdef ShownTopic* topic = view.by_name[place]
    while topic != NULL:
        if (
            topic.name_hash == wanted
            and topic.name_length == length
            and memcmp(topic.name, name, <size_t>length) == 0
        ):
            return place
        place = (place + 1) & view.mask
        topic = view.by_name[place]
    return -1


cdef int64_t view_place_by_id(MetadataView* view, const uint8_t* topic_id) noexcept nogil:
    """The place in `by_id`, or -1."""
    cdef uint32_t place = name_hash(topic_id, 16) & view.mask
    cdef ShownTopic* topic = view.by_id[place]
    while topic != NULL:
        if memcmp(topic.topic_id, topic_id, 16) == 0:
            return place
        place = (place + 1) & view.mask
        topic = view.by_id[place]
    return -1


cdef ShownBroker* view_broker(MetadataView* view, int32_t node_id) noexcept nogil:
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
