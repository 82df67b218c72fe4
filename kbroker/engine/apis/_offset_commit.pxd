# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.group._offset_records cimport OffsetKey, OffsetValue
from kbroker.coordinator.group._structs cimport Group, GroupShard
from kbroker.log.engine._types cimport Batch
from kbroker.net._types cimport Request
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._group_member cimport AskingMember


cdef struct CommittedPartition:
    OffsetKey key                 # its names are in the frame, or in the snapshot
    OffsetValue value


cdef struct CommittedTopic:
    uint8_t* name                 # in the frame, up to version 9
    int32_t name_length
    uint8_t* topic_id             # in the frame, from version 10
    int32_t partition_count
    CommittedPartition* partitions


cdef struct CommitPlan:
    CommitPlan* next              # of the same shard, in order
    Request* request
    int32_t correlation_id
    AskingMember asking
    int64_t retention_ms          # -1: the broker's
    GroupShard* shard
    Group* group                  # while the shard's lock is held
    int accepted                  # the group takes it, and its batch is to be written
    int32_t topic_count
    CommittedTopic* topics
    int32_t partition_count       # of all topics
    Batch batch


cdef void offset_commit_run(
    HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil
