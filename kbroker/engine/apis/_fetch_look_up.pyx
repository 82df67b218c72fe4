# cython: language_level=3
"""What a fetch names, found in the snapshot: a partition, or why there is none.

A session that follows a topic by id keeps the hash of its name, from when the topic was here. When
it is gone the answer is UNKNOWN_TOPIC_OR_PARTITION, and when it was made again under its name
INCONSISTENT_TOPIC_ID, as from Kafka, whose sessions keep the name. The client asks for metadata
then and follows the new id. Without a session an id that is gone is UNKNOWN_TOPIC_ID.

A missing partition is answered at once where there is nothing else to wait for. A client that keeps
a session and has had that answer already waits, or it would ask again and again without a pause; a
second at most (_parked), since the topic may come and nothing wakes it then.
"""

from libc.stdint cimport int32_t

from kbroker.core._error_codes cimport (
    INCONSISTENT_TOPIC_ID,
    NO_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kbroker.replica._snapshot cimport (
    Snapshot,
    TopicEntry,
    snapshot_by_hash,
    snapshot_by_id,
    snapshot_by_name,
)
from kbroker.engine.apis._fetch_plan cimport FetchPlan, FetchTarget


cdef void _look_again(Snapshot* snapshot, FetchTarget* target) noexcept nogil:
    # There is no topic of this id or name. If its session has known the id, the name counts.
    cdef TopicEntry* again = NULL
    target.error = UNKNOWN_TOPIC_OR_PARTITION
    if target.topic_id == NULL:
        return
    if target.entry == NULL or target.entry.name_hash == 0:
        target.error = UNKNOWN_TOPIC_ID
        return
    again = snapshot_by_hash(snapshot, target.entry.name_hash)
    target.topic = again
    target.made_again = (again != NULL and 0 <= target.index < again.partition_count
                         and again.partitions[target.index] != NULL)
    if target.made_again:
        target.error = INCONSISTENT_TOPIC_ID


cdef void fetch_note_not_there(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    target.not_there = 1
    plan.not_there_count += 1
    # A broker that follows has pauses of its own, and gets a new topic as soon as there is one.
    plan.known_count += (plan.replica_id < 0 and target.entry != NULL
                         and target.entry.sent_error == target.error)


cdef void fetch_look_up(Snapshot* snapshot, FetchPlan* plan) noexcept nogil:
    """The partition of each target, or its error."""
    cdef TopicEntry* entry = NULL
    cdef FetchTarget* target
    cdef FetchTarget* before
    cdef int32_t i
    for i in range(plan.count):
        target = &plan.targets[i]
        before = &plan.targets[i - 1]
        if i == 0 or target.name != before.name or target.topic_id != before.topic_id:
            if target.topic_id != NULL:
                entry = snapshot_by_id(snapshot, target.topic_id)
            else:
                entry = snapshot_by_name(snapshot, target.name, target.name_length)
        target.topic = entry
        if entry == NULL:
            _look_again(snapshot, target)
        elif target.index < 0 or target.index >= entry.partition_count:
            target.error = UNKNOWN_TOPIC_OR_PARTITION
        if target.error != NO_ERROR:
            fetch_note_not_there(plan, target)
            continue
        target.name_hash = entry.key.name_hash
        if target.entry != NULL:
            target.entry.name_hash = entry.key.name_hash
        target.partition = entry.partitions[target.index]
        if target.partition == NULL:
            target.error = NOT_LEADER_OR_FOLLOWER
