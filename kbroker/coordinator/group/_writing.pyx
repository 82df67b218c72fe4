# cython: language_level=3
"""Committed offsets that Python has put together, in one batch into the log and into the shard.

A record's offset is in the shard's memory after it was appended, and at a load. Records of a
transaction are appended alone: they get there with its marker (`_groups`).
"""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from kbroker.coordinator.group._members cimport member_find_locked
from kbroker.coordinator.group._offset_records cimport (
    OffsetKey, OffsetValue, read_offset_key, read_offset_value)
from kbroker.coordinator.group._offsets cimport offset_apply_locked, offset_remove_locked
from kbroker.coordinator.group._shards cimport (
    group_drop_if_bare_locked, group_find_locked, group_take_locked)
from kbroker.coordinator.group._state_rows cimport COMMITS_OF_MEMBERS, COMMITS_OF_NO_MEMBER
from kbroker.coordinator.group._structs cimport Group, GroupShard, Member
from kbroker.coordinator.runtime._batches cimport Records, Text
from kbroker.coordinator.runtime._shards cimport shard_append_locked
from kbroker.coordinator.runtime._structs cimport APPLIED, FOR_PYTHON, NO_MEMORY, Shard
from kbroker.core._error_codes cimport ILLEGAL_GENERATION, UNKNOWN_SERVER_ERROR
from kbroker.log.engine._records cimport (
    AT_ATTRIBUTES,
    AT_BASE_SEQUENCE,
    AT_CRC,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    crc32c,
)
from kbroker.log.engine._types cimport Batch
from kbroker.protocol._cursor cimport kb_put_u32, kb_put_u64, put_i16


cdef int _accepts_locked(GroupShard* shard, const Committer* committer) noexcept nogil:
    # As the compiled OffsetCommit: what Python has checked may have changed since.
    cdef Group* group = group_find_locked(shard, committer.group.at, committer.group.length)
    cdef Member* member
    if group == NULL or not group.published:
        # Offsets of no member need a group that is there, or they would be left alone: it was
        # deleted since Python has asked it, and Python makes another one.
        return committer.generation >= 0 and committer.checked_twice
    if committer.generation < 0 and (
        committer.in_transaction or group.commits_of == COMMITS_OF_NO_MEMBER
    ):
        return 1
    if group.generation != committer.generation or (
        not committer.in_transaction and group.commits_of != COMMITS_OF_MEMBERS
    ):
        return 0
    member = member_find_locked(group, committer.member.at, committer.member.length)
    if member == NULL:
        return committer.checked_twice  # one that waits for its first generation is not published
    return (
        committer.instance.length < 0
        or (committer.instance.length == member.instance_length
            and memcmp(committer.instance.at, member.id + member.id_length,
                       <size_t>committer.instance.length) == 0))


cdef int _apply_locked(
    GroupShard* shard, const Text* key, const Text* value, int64_t log_offset,
    const uint8_t* topic_id,
) noexcept nogil:
    cdef OffsetKey parsed
    cdef OffsetValue offset
    cdef Group* group
    if read_offset_key(key, &parsed) != 1:
        return FOR_PYTHON
    if value.length < 0:
        group = group_find_locked(shard, parsed.group.at, parsed.group.length)
        if group != NULL:
            offset_remove_locked(shard, group, &parsed, log_offset)
            group_drop_if_bare_locked(shard, group)
        return APPLIED
    if read_offset_value(value, &offset) != 1:
        return FOR_PYTHON
    if offset.topic_id == NULL:
        offset.topic_id = topic_id
    group = group_take_locked(shard, parsed.group.at, parsed.group.length)
    if group == NULL or offset_apply_locked(shard, group, &parsed, &offset, log_offset) != 0:
        return NO_MEMORY
    return APPLIED


cdef int offset_record_apply_locked(
    Shard* shard, const Text* key, const Text* value, int64_t log_offset,
) noexcept nogil:
    return _apply_locked(<GroupShard*>shard, key, value, log_offset, NULL)


cdef void batch_put_producer(
    Batch* batch, int64_t producer_id, int16_t producer_epoch, int64_t guard,
) noexcept nogil:
    cdef uint8_t* data = batch.data
    data[AT_ATTRIBUTES + 1] |= TRANSACTIONAL_BIT
    kb_put_u64(data + AT_PRODUCER_ID, <uint64_t>producer_id)
    put_i16(data + AT_PRODUCER_EPOCH, producer_epoch)
    # As Kafka's: a coordinator's batches of a transaction are not numbered.
    kb_put_u32(data + AT_BASE_SEQUENCE, <uint32_t>-1)
    kb_put_u32(data + AT_CRC, crc32c(0, data + AT_ATTRIBUTES, batch.length_bytes - AT_ATTRIBUTES))
    batch.attributes = TRANSACTIONAL_BIT
    batch.producer_id = producer_id
    batch.producer_epoch = producer_epoch
    batch.base_sequence = -1
    batch.guard = guard


cdef int transaction_write_locked(
    GroupShard* shard, Batch* batch, const Committer* committer,
) noexcept nogil:
    if committer != NULL and not _accepts_locked(shard, committer):
        return ILLEGAL_GENERATION
    shard_append_locked(&shard.base, batch, batch.max_timestamp_ms)
    return batch.error


cdef int commit_write_locked(
    GroupShard* shard, Batch* batch, const Records* records, const uint8_t** topic_ids,
    const Committer* committer,
) noexcept nogil:
    cdef const Text* texts = records.texts
    cdef Py_ssize_t i
    if committer != NULL and not _accepts_locked(shard, committer):
        return ILLEGAL_GENERATION
    shard_append_locked(&shard.base, batch, batch.max_timestamp_ms)
    if batch.error != 0:
        return batch.error
    for i in range(records.count):
        if _apply_locked(
            shard, &texts[2 * i], &texts[2 * i + 1], batch.base_offset + i, topic_ids[i],
        ) == NO_MEMORY:
            return UNKNOWN_SERVER_ERROR
    return 0
