# cython: language_level=3
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.group._structs cimport Group


# How a version of OffsetFetch writes a partition.
cdef struct FetchForm:
    int flexible
    int leader_epochs
    int64_t high_watermark        # of the group's partition: offsets above it are not answered


# One topic's array of partitions, as the answer carries it.
cdef struct FetchedTopic:
    Text name
    const uint8_t* indexes        # big-endian int32s; NULL: all that the group has
    const uint8_t* unstable       # by index: a transaction has an offset of it; NULL: of none
    int32_t count
    int8_t has_id                 # of all topics: the one that was committed for; else: wanted
    uint8_t topic_id[16]
    uint8_t* data                 # malloc'ed
    int64_t length


# The request for one group.
cdef struct Fetched:
    FetchForm form
    int all_topics
    int named_before              # in the same request: all of it has been answered once
    int64_t texts_again_max       # bytes of metadata that may be answered again
    int64_t texts                 # of these, how many were used
    int32_t count
    FetchedTopic* topics          # calloc'ed


# 0, or -1: no memory. The group may be NULL: it has committed nothing.
cdef int fetch_locked(Fetched* fetched, Group* group) noexcept nogil
cdef void fetched_free(Fetched* fetched) noexcept nogil
