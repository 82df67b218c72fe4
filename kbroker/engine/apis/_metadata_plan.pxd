# cython: language_level=3
"""A Metadata request on its way: what it asks, which topics its answer has."""

from libc.stdint cimport int16_t, int32_t, uint8_t

from kbroker.net._types cimport Request
from kbroker.replica._metadata_view cimport MetadataView, ViewTopic


cdef enum:
    MISSING_MAX = 64              # each is compared with those before it
    OPERATIONS_FROM = 8           # versions that ask what the client may do
    CLUSTER_OPERATIONS_TO = 10
    TOPIC_IDS_FROM = 10


# One topic of an answer: one of the view, or a name or an id that does not exist.
cdef struct AnsweredTopic:
    ViewTopic* topic              # NULL: `error`, with the name or id of the request
    int16_t error
    uint8_t* name                 # in the frame; NULL when asked by id
    int32_t name_length
    uint8_t* topic_id             # in the frame; NULL when asked by name


cdef struct MetadataPlan:
    Request* request
    MetadataView* view
    int version
    int flexible
    int32_t correlation_id
    int all_topics
    int cluster_operations        # the client wants to know what it may do
    int topic_operations
    int32_t count                 # of the topics answered, unless it is all
    int32_t missing
    int32_t missing_at[MISSING_MAX]  # places of the missing in `topics`
    AnsweredTopic* topics
