# cython: language_level=3
from libc.stdint cimport int64_t, uint8_t

from kbroker.coordinator.group._offset_records cimport OffsetKey
from kbroker.coordinator.group._structs cimport Group, GroupShard
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.runtime._structs cimport Appended
from kbroker.core._arena cimport Arena


# Records that follow the tombstones in the same batch: keys and values in turn.
cdef struct MoreRecords:
    const Text* texts
    int64_t count


# Appends tombstones for those keys that are there, with `until_ms` >= 0 only for those committed
# by then, with a `topic_id` only for those of no other topic; then they are gone. 0, or an error as
# a coordinator says it. `appended` becomes the last batch; if there is none, all that was written.
# `keys` and `count` become those that have one. `more` follows them.
cdef int offsets_remove_locked(
    GroupShard* shard, OffsetKey* keys, int64_t* count, const MoreRecords* more, int64_t until_ms,
    const uint8_t* topic_id, int64_t now_ms, Appended* appended) noexcept nogil

# The same for all offsets of a group, which may be NULL.
cdef int group_delete_locked(
    GroupShard* shard, Arena* arena, Group* group, const MoreRecords* more, int64_t now_ms,
    Appended* appended) noexcept nogil
