# cython: language_level=3
"""The C snapshot of the metadata as Python fills it: what Produce and Fetch look up, and what
Metadata shows.

    before an image is published: `publish`, from the replica manager: topic -> partitions
    after it:                     `show`, from the MetadataPublisher: topics, leaders, brokers

Owner: the controller's thread. Both wait a moment for readers inside a hot call, so they release
the GIL for everything but reading their arguments. One that stays there is not waited for: what it
looks at is kept until it has left. The hot path reads what they left and never comes back here. A
`ViewRow` is filled in pieces, so that a topic of many partitions does not hold the GIL.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kbroker.replica._metadata_view cimport (
    MetadataView,
    ViewAddress,
    ViewBroker,
    ViewPartition,
    ViewTopic,
    view_ids_add,
    view_topic_free,
    view_topic_new,
    view_free,
    view_free_with_topics,
    view_new,
)
from kbroker.replica._partition cimport partition_acquire
from kbroker.replica._replica cimport Replica
from kbroker.replica._snapshot cimport (
    Retired,
    TopicEntry,
    registry_free,
    registry_new,
    registry_publish,
    registry_reclaim,
    registry_swap,
    topic_entry_free,
    topic_entry_new,
)
from kbroker.replica._topic_index cimport topic_place_by_name


# A view that another has taken the place of, and the topics that went with it; -1: all.
cdef struct OldView:
    Retired retired               # the first
    MetadataView* view
    ViewTopic** gone
    int count


cdef class TopicTable:
    """Topics by name and id, for C readers; `publish` is the only way to change it."""

    def __cinit__(self):
        self.registry = registry_new()
        if self.registry == NULL:
            raise MemoryError

    def __dealloc__(self):
        view_free_with_topics(self.published)
        registry_free(self.registry)

    def publish(self, list added, list removed):
        """Adds topics and removes others in one step.

        `added`: (name, topic id of 16 bytes, internal, list of Replica or None by index);
        one that is there already, by id, is replaced. `removed`: topic ids. When this returns, no
        hot call finds a removed topic; one that hangs may still be at it.
        """
        cdef int added_count = len(added)
        cdef int removed_count = len(removed)
        cdef TopicEntry** entries = <TopicEntry**>calloc(added_count + 1, sizeof(TopicEntry*))
        cdef const uint8_t** ids = <const uint8_t**>calloc(removed_count + 1, sizeof(uint8_t*))
        cdef int status = -1
        cdef bytes topic_id
        cdef int i
        try:
            if entries == NULL or ids == NULL:
                raise MemoryError
            for i in range(removed_count):
                topic_id = removed[i]
                _check_topic_id(topic_id)
                ids[i] = <const uint8_t*>topic_id
            for i in range(added_count):
                name, topic_id, internal, replicas = added[i]
                entries[i] = _entry(name, topic_id, internal, replicas)
            with nogil:
                status = registry_publish(self.registry, entries, added_count, ids, removed_count)
            if status != 0:
                raise MemoryError
        finally:
            if status != 0 and entries != NULL:
                for i in range(added_count):
                    topic_entry_free(entries[i])
            free(entries)
            free(ids)

    def show(self, rows, removed, brokers, str cluster_id not None):
        """Makes Metadata show this from now on; all or nothing.

        `rows`: topics that are new or changed, in the order of their names; each goes into one
        table only. `removed`: names. `brokers`: (node id, addresses, rack), by node id; all those
        there are, like `cluster_id`. An address is (host, port), or None, for each listener of this
        broker, in the server's order.
        """
        cdef list added_rows = list(rows)
        cdef int added_count = <int>len(added_rows)
        cdef ViewTopic** added = <ViewTopic**>calloc(added_count + 1, sizeof(ViewTopic*))
        cdef OldView* old = NULL
        cdef int gone_count = 0
        cdef bytes encoded
        cdef int i
        cdef MetadataView* fresh = NULL
        try:
            old = _old_view_new(self.published, added_count + <int>len(removed))
            if added == NULL or old == NULL:
                raise MemoryError
            for i in range(added_count):
                added[i] = _whole(added_rows[i])
            for name in removed:
                encoded = name.encode()
                gone_count += _mark_gone(
                    self.published, <const uint8_t*>encoded, <int32_t>len(encoded),
                    &old.gone[gone_count])
            with nogil:
                for i in range(added_count):
                    gone_count += _mark_gone(
                        self.published, added[i].key.name, added[i].key.name_length,
                        &old.gone[gone_count])
            fresh = self._build(added, added_count, gone_count, brokers, cluster_id)
            for i in range(added_count):
                (<ViewRow>added_rows[i]).topic = NULL
            old.count = gone_count
            with nogil:
                registry_swap(self.registry, <void**>&self.published, fresh, &old.retired)
        finally:
            if fresh == NULL and old != NULL:
                for i in range(gone_count):
                    old.gone[i].gone = 0
                free(old)
            free(added)

    cdef MetadataView* _build(
        self, ViewTopic** added, int added_count, int gone_count, object brokers,
        str cluster_id,
    ) except NULL:
        cdef bytes text = _text_of(brokers, cluster_id)
        cdef int broker_count = <int>len(brokers)
        cdef uint32_t listener_count = <uint32_t>len(brokers[0][1]) if brokers else 0
        cdef size_t text_bytes = <size_t>len(text)
        cdef MetadataView* fresh
        with nogil:
            fresh = view_new(
                self.published, added, added_count, gone_count, broker_count, listener_count,
                text_bytes)
        if fresh == NULL:
            raise MemoryError
        try:
            _fill_brokers(fresh, brokers, cluster_id, text)
        except BaseException:
            view_free(fresh)
            raise
        return fresh

    def hide(self):
        """Shows nothing: Python answers Metadata until the next `show`, which begins with none."""
        cdef OldView* old = _old_view_new(self.published, 0)
        if old == NULL:
            raise MemoryError
        old.count = -1
        with nogil:
            registry_swap(self.registry, <void**>&self.published, NULL, &old.retired)

    def reclaim(self) -> int:
        """Frees what hot calls have left since it was replaced; of how much one has not left."""
        cdef int left
        with nogil:
            left = registry_reclaim(self.registry)
        return left


cdef class ViewRow:
    """One topic on its way into a table: made, filled with its partitions in order, given away."""

    def __cinit__(self, str name, bytes topic_id, bint internal, int partition_count):
        cdef bytes encoded = name.encode()
        _check_topic_id(topic_id)
        if partition_count < 0:
            raise ValueError(f"{partition_count} partitions")
        self.topic = view_topic_new(
            <const uint8_t*>encoded, <int32_t>len(encoded), <const uint8_t*>topic_id, internal,
            partition_count)
        if self.topic == NULL:
            raise MemoryError
        self.name = name

    def __dealloc__(self):
        view_topic_free(self.topic)

    def fill(self, partitions):
        """The next partitions: each with leader, leader_epoch, replicas and isr."""
        for partition in partitions:
            self._fill(partition)

    cdef int _fill(self, object partition) except -1:
        cdef ViewTopic* topic = self.topic
        cdef ViewPartition* place
        cdef tuple replicas = partition.replicas
        cdef tuple isr = partition.isr
        if topic == NULL or self.filled == topic.partition_count:
            raise ValueError(f"more partitions than {self.name} has")
        place = &topic.partitions[self.filled]
        place.leader = partition.leader
        place.leader_epoch = partition.leader_epoch
        if replicas != self.last_ids:
            self.last_place = _add_ids(topic, replicas)
            self.last_ids = replicas
        place.replicas = <unsigned int>self.last_place
        place.isr = place.replicas if isr == replicas else <unsigned int>_add_ids(topic, isr)
        topic.replica_ids += len(replicas)
        topic.isr_ids += len(isr)
        self.filled += 1
        return 0


cdef int64_t _add_ids(ViewTopic* topic, tuple ids) except -1:
    cdef Py_ssize_t count = len(ids)
    cdef int32_t* copied = <int32_t*>calloc(count + 1, sizeof(int32_t))
    cdef int64_t place
    cdef Py_ssize_t i
    if copied == NULL:
        raise MemoryError
    try:
        for i in range(count):
            copied[i] = ids[i]
        place = view_ids_add(topic, copied, <int32_t>count)
    finally:
        free(copied)
    if place < 0:
        raise MemoryError
    return place


cdef ViewTopic* _whole(ViewRow row) except NULL:
    if row.topic == NULL or row.filled != row.topic.partition_count:
        raise ValueError(f"{row.name} has not got all its partitions, or was published already")
    return row.topic


cdef int _mark_gone(
    MetadataView* view, const uint8_t* name, int32_t length, ViewTopic** found,
) noexcept nogil:
    # A topic of the view that the next one leaves out; 0: there is none, or it is marked.
    cdef ViewTopic* topic = NULL
    if view != NULL:
        topic = <ViewTopic*>topic_place_by_name(&view.index, name, length)[0]
    if topic == NULL or topic.gone:
        return 0
    found[0] = topic
    topic.gone = 1
    return 1


cdef bytes _text_of(brokers, str cluster_id):
    # Everything that a view keeps as text, one after the other.
    texts = [cluster_id]
    for _, addresses, rack in brokers:
        texts += [address[0] for address in addresses if address is not None]
        texts.append(rack or "")
    return "".join(texts).encode()


cdef int32_t _text_bytes(str text) except -1:
    return <int32_t>len(text.encode())


cdef int _fill_brokers(MetadataView* view, brokers, str cluster_id, bytes text) except -1:
    # In the order of _text_of; the text follows the addresses, and these the brokers.
    cdef ViewAddress* address = <ViewAddress*>&view.brokers[<size_t>len(brokers)]
    cdef uint8_t* at = <uint8_t*>&address[<size_t>len(brokers) * view.listener_count]
    cdef ViewBroker* place
    memcpy(at, <const char*>text, <size_t>len(text))
    view.broker_text_bytes = <size_t>len(text)
    view.cluster_id = at
    view.cluster_id_length = _text_bytes(cluster_id)
    at += view.cluster_id_length
    for node_id, addresses, rack in brokers:
        if <uint32_t>len(addresses) != view.listener_count:
            raise ValueError("each broker has a place for every listener")
        place = &view.brokers[view.broker_count]
        place.node_id = node_id
        place.addresses = address
        for known in addresses:
            address.port = -1 if known is None else known[1]
            address.host = at
            address.host_length = 0 if known is None else _text_bytes(known[0])
            at += address.host_length
            address += 1
        place.rack = at
        place.rack_length = -1 if rack is None else _text_bytes(rack)
        if place.rack_length > 0:
            at += place.rack_length
        view.broker_count += 1
    return 0


cdef void _old_view_release(Retired* retired) noexcept nogil:
    cdef OldView* old = <OldView*>retired
    cdef int i
    if old.count < 0:
        view_free_with_topics(old.view)
    else:
        for i in range(old.count):
            view_topic_free(old.gone[i])
        view_free(old.view)
    free(old)


cdef OldView* _old_view_new(MetadataView* view, int gone_max) noexcept nogil:
    cdef OldView* old = <OldView*>calloc(
        1, sizeof(OldView) + <size_t>gone_max * sizeof(ViewTopic*))
    if old != NULL:
        old.retired.release = _old_view_release
        old.view = view
        old.gone = <ViewTopic**>(<char*>old + sizeof(OldView))
    return old


cdef int _check_topic_id(bytes topic_id) except -1:
    # C compares 16 bytes of it.
    if topic_id is None or len(topic_id) != 16:
        raise ValueError("a topic id has 16 bytes")
    return 0


cdef TopicEntry* _entry(str name, bytes topic_id, bint internal, list replicas) except NULL:
    cdef bytes encoded = name.encode()
    cdef TopicEntry* entry
    cdef Replica replica
    cdef int i
    _check_topic_id(topic_id)
    entry = topic_entry_new(
        <const uint8_t*>encoded, <int>len(encoded), <const uint8_t*>topic_id, <int>len(replicas),
        internal)
    if entry == NULL:
        raise MemoryError
    for i in range(<int>len(replicas)):
        if replicas[i] is not None:
            replica = replicas[i]
            partition_acquire(replica.partition)
            entry.partitions[i] = replica.partition
    return entry
