# cython: language_level=3
"""A produce on its way: its train of frames, their topics, partitions and batches."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Batch
from kbroker.net._types cimport Request
from kbroker.replica._partition cimport Partition
from kbroker.replica._snapshot cimport TopicEntry
from kbroker.engine.apis._leaders cimport NamedLeaders
from kbroker.engine.worker._verdicts cimport Asker

cdef enum:
    TOPIC_IDS_FROM = 13           # versions


cdef struct ProducePartition:
    int32_t index
    Partition* partition          # NULL: batch.error says why
    Batch batch


cdef struct ProduceTopic:
    uint8_t* name                 # in the frame
    int32_t name_length
    uint8_t* topic_id             # in the frame, from version 13
    const TopicEntry* entry       # in the snapshot, while it is entered; NULL: it is not known
    int32_t partition_count
    ProducePartition* partitions


cdef struct ProduceFrame:
    ProduceFrame* next            # of the same request's train
    int32_t correlation_id
    int16_t acks
    int32_t timeout_ms            # how long it may wait for followers
    uint8_t* transactional_id     # in the frame; NULL: it names none
    int32_t transactional_id_length
    int64_t producer_id           # of its first transactional batch; -1: it has none
    int16_t producer_epoch
    int asks_id                   # the authorizer decides about its transactional id
    int admin                     # the client may write internal topics
    int malformed
    int16_t error                 # not 0: of every partition
    int64_t unpacked_left         # what its batches may still unpack to
    NamedLeaders leaders          # that the answer has named
    int32_t topic_count
    ProduceTopic* topics


# A batch that was found to need a guard; in the run's arena.
cdef struct FoundBatch:
    const ProduceFrame* frame
    const ProduceTopic* topic
    ProducePartition* place
    int32_t ordinal               # of the request's batches, as plan_next() has them
    int64_t guard
    int is_held                   # the first with that guard


cdef struct ProducePlan:
    ProducePlan* next
    Request* request
    ProduceFrame* frames
    int reason                    # not REASON_NONE: Python takes the request
    Log* slow                     # one whose writes are slow; NULL: none is
    int slow_hangs                # WRITE_HANGS: one of them is under way
    int32_t batch_count
    int32_t transactional_count   # of them
    FoundBatch* unverified        # those whose guards C has given them; NULL: there are none
    int32_t unverified_count
    int joins                     # their partitions are to be added to the transaction first
    int asks                      # the authorizer decides about it
    int unknown_rights            # Python is to decide first
    Asker asker                   # with `asks`
    int64_t compressed_bytes      # of its batches that are to be unpacked
    int64_t largest_bytes         # of one of them
    int unpacks_slowly            # one of them is of such a codec


# Where a look at all partitions of a plan is: begun with PlanWalk(plan.frames, 0, 0).
cdef struct PlanWalk:
    ProduceFrame* frame           # of the partition that plan_next() has answered last
    int32_t topic
    int32_t number


# The next partition, up to a frame that did not parse; NULL: there is none.
cdef inline ProducePartition* plan_next(PlanWalk* walk) noexcept nogil:
    cdef ProduceTopic* topic
    while walk.frame != NULL and not walk.frame.malformed:
        while walk.topic < walk.frame.topic_count:
            topic = &walk.frame.topics[walk.topic]
            if walk.number < topic.partition_count:
                walk.number += 1
                return &topic.partitions[walk.number - 1]
            walk.topic += 1
            walk.number = 0
        walk.frame = walk.frame.next
        walk.topic = 0
    return NULL
