# cython: language_level=3
"""The C snapshot of the metadata as the replica manager publishes it.

Owner: the controller's thread, through the replica manager. Publishing waits for readers inside a
hot call, so it releases the GIL. The hot path reads the registry and never comes back here.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from kbroker._log cimport PartitionLog
from kbroker.log._partition cimport partition_acquire
from kbroker.replica._snapshot cimport (
    TopicEntry,
    registry_free,
    registry_new,
    registry_publish,
    topic_entry_free,
    topic_entry_new,
)


cdef class TopicTable:
    """Topics by name and id, for C readers; `publish` is the only way to change it."""

    def __cinit__(self):
        self.registry = registry_new()
        if self.registry == NULL:
            raise MemoryError

    def __dealloc__(self):
        registry_free(self.registry)

    def publish(self, list added, list removed):
        """Adds topics and removes others in one step.

        `added`: (name, topic id of 16 bytes, internal, list of PartitionLog or None by index);
        one that is there already, by id, is replaced. `removed`: topic ids. When this returns, no
        hot call sees a removed topic.
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
                name, topic_id, internal, logs = added[i]
                entries[i] = _entry(name, topic_id, internal, logs)
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


cdef int _check_topic_id(bytes topic_id) except -1:
    # C compares 16 bytes of it.
    if topic_id is None or len(topic_id) != 16:
        raise ValueError("a topic id has 16 bytes")
    return 0


cdef TopicEntry* _entry(str name, bytes topic_id, bint internal, list logs) except NULL:
    cdef bytes encoded = name.encode()
    cdef TopicEntry* entry
    cdef PartitionLog log
    cdef int i
    _check_topic_id(topic_id)
    entry = topic_entry_new(
        <const uint8_t*>encoded, <int>len(encoded), <const uint8_t*>topic_id, <int>len(logs),
        internal)
    if entry == NULL:
        raise MemoryError
    for i in range(<int>len(logs)):
        if logs[i] is not None:
            log = logs[i]
            partition_acquire(log.partition)
            entry.partitions[i] = log.partition
    return entry
