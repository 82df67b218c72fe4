# cython: language_level=3
"""Records that Python has put together, in one batch into the log and into the shard."""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from kbroker.coordinator.group._loading cimport NO_MEMORY, record_apply_locked
from kbroker.coordinator.group._members cimport member_find_locked
from kbroker.coordinator.group._shards cimport group_find_locked, shard_append_locked
from kbroker.coordinator.group._state_rows cimport COMMITS_OF_MEMBERS, COMMITS_OF_NO_MEMBER
from kbroker.coordinator.group._structs cimport Group, Member, Shard
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.core._error_codes cimport ILLEGAL_GENERATION, UNKNOWN_SERVER_ERROR
from kbroker.log.engine._types cimport Batch


cdef int _accepts_locked(Shard* shard, const Committer* committer) noexcept nogil:
    # As the compiled OffsetCommit: what Python has checked may have changed since.
    cdef Group* group = group_find_locked(shard, committer.group.at, committer.group.length)
    cdef Member* member
    if group == NULL or not group.shown:
        # Offsets that are nobody's in particular need a group that is there, or they would be left
        # alone: it was deleted since Python has asked it, and Python makes another one.
        return committer.generation >= 0 and committer.checked_twice
    if committer.generation < 0 and group.commits_of == COMMITS_OF_NO_MEMBER:
        return 1
    if group.generation != committer.generation or group.commits_of != COMMITS_OF_MEMBERS:
        return 0
    member = member_find_locked(group, committer.member.at, committer.member.length)
    if member == NULL:
        return committer.checked_twice  # one that waits for its first generation is not published
    return (
        committer.instance.length < 0
        or (committer.instance.length == member.instance_length
            and memcmp(committer.instance.at, member.id + member.id_length,
                       <size_t>committer.instance.length) == 0))


cdef int records_write_locked(
    Shard* shard, Batch* batch, const Text* texts, const uint8_t** topic_ids, Py_ssize_t count,
    const Committer* committer,
) noexcept nogil:
    cdef Py_ssize_t i
    if committer != NULL and not _accepts_locked(shard, committer):
        return ILLEGAL_GENERATION
    shard_append_locked(shard, batch, batch.max_timestamp_ms)
    if batch.error != 0:
        return batch.error
    for i in range(count):
        if record_apply_locked(
            shard, &texts[2 * i], &texts[2 * i + 1], batch.base_offset + i, topic_ids[i],
        ) == NO_MEMORY:
            return UNKNOWN_SERVER_ERROR
    return 0
