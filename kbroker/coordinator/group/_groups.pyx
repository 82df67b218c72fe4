# cython: language_level=3
"""The groups as C sees them, and the committed offsets: `GroupTable`, the face for Python.

    GroupCoordinator  -> publish_members, last_heard_ms        what Heartbeat and OffsetCommit check
    GroupStore        -> what every machine's store calls   (`runtime/_shard_table`)
    handlers          -> commit, remove_offsets, offsets    the Python halves of the calls
    hot path          -> the shards themselves (GroupTable.shards), without the GIL

Threads and locks are those of every table of shards.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

import struct
import threading

from kbroker.coordinator.group._copies cimport Copies, Wanted, copies_free, copy_offsets
from kbroker.coordinator.group._fetching cimport Fetched, FetchForm, fetch_locked, fetched_free
from kbroker.coordinator.group._members cimport member_find_locked, member_free
from kbroker.coordinator.group._offset_records cimport OffsetKey
from kbroker.coordinator.group._python cimport (
    committed_of, committer_of, encoded_key, fetched_init, fetched_topics, member_of,
    published_group, topic_id_at, topic_id_in)
from kbroker.coordinator.group._python import (
    CommittedOffset, ShardStatistics, offset_key, offset_value, partition_of_key)
from kbroker.coordinator.group._shards cimport (
    group_find_locked, group_hide_locked, group_publish_locked, group_shard_clear_locked,
    group_shard_lock)
from kbroker.coordinator.group._structs cimport GROUP_DEAD, Group, GroupShard, Member
from kbroker.coordinator.group._tombstones cimport (
    MoreRecords, group_delete_locked, offsets_remove_locked)
from kbroker.coordinator.group._writing cimport (
    Committer, batch_put_producer, commit_write_locked, offset_record_apply_locked,
    transaction_write_locked)
from kbroker.coordinator.runtime._batches cimport Records, Text, batch_of_records
from kbroker.coordinator.runtime._loading cimport record_load
from kbroker.coordinator.runtime._python import LoadedRecord
from kbroker.coordinator.runtime._python cimport (
    name_bytes, nullable_text_of, records_take, str_of, text_of, texts_of)
from kbroker.coordinator.runtime._shard_table cimport ShardTable, Written
from kbroker.coordinator.runtime._shards cimport (
    appended_of, high_watermark_of, shard_error, shard_hangs, shard_unlock, shard_written_locked)
from kbroker.coordinator.runtime._structs cimport NO_MEMORY, SHARD_NOT_OWNER, Appended, ShardKind
from kbroker.coordinator.runtime.open_transactions import OpenTransactions
from kbroker.core._arena cimport Arena, arena_free, arena_take
from kbroker.core._atomics cimport kb_load_int
from kbroker.core._error_codes cimport COORDINATOR_NOT_AVAILABLE, MESSAGE_TOO_LARGE
from kbroker.core._sync cimport kb_now_ns, kb_wall_ms
from kbroker.log.engine._types cimport NO_GUARD_NEEDED, Batch
from kbroker.replica._open_transactions cimport transaction_begun

__all__ = [
    "CommittedOffset",
    "GroupTable",
    "ShardStatistics",
    "offset_key",
    "offset_value",
]

cdef enum:
    COMMIT_BYTES_MAX = 64 << 20   # no log takes so large a batch
    METADATA_BYTES_MAX = 4096

cdef ShardKind _GROUPS = ShardKind(
    shard_bytes=sizeof(GroupShard), clear_locked=group_shard_clear_locked,
    apply_locked=offset_record_apply_locked)


def _unstable(pending, name, indexes):
    # One byte for each partition that is asked for; None: none is pending.
    of_topic = {partition for topic, partition in pending if topic == name}
    if not of_topic:
        return None
    return bytes([index in of_topic for (index,) in struct.iter_unpack(">i", indexes)])


def _is_of_another(record, topic_id):
    # Whether it is for a topic that has another id.
    its_id = topic_id_in(record.value)
    return its_id is not None and its_id != topic_id


def _partitions_of(offsets, topic_id_of):
    # What a group has committed, as a request names it.
    by_topic = {}
    for offset in offsets:
        now = None if topic_id_of is None else topic_id_of(offset.topic)
        if now is None or offset.topic_id in (None, now):
            by_topic.setdefault(offset.topic, []).append(offset.partition)
    return [(name, struct.pack(f">{len(some)}i", *some)) for name, some in by_topic.items()]


cdef class GroupTable(ShardTable):
    """One per broker: the partitions of `__consumer_offsets`."""

    def __cinit__(
        self, listener=None, *, int64_t metadata_bytes_max=METADATA_BYTES_MAX, write_timeout_ms=0,
    ):
        self.shards.kind = &_GROUPS
        self.metadata_bytes_max = metadata_bytes_max
        self.open_transactions = OpenTransactions(partition_of_key)
        self.transaction_locks = {}

    cdef GroupShard* _group_shard(self, int partition) except NULL:
        return <GroupShard*>self._shard(partition)

    cdef GroupShard* _group_shard_of(self, str group_id):
        # NULL: there is no topic.
        return <GroupShard*>self._shard_of(group_id)

    # --- HotView ----------------------------------------------------------------------------------

    def publish_members(self, str group_id not None, *, int state, int generation, members):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef Text text = text_of(id)
        cdef list rows = list(members)
        cdef int32_t count = <int32_t>len(rows)
        cdef Member** fresh
        cdef int32_t i
        cdef int status = 0
        if state == GROUP_DEAD:
            self.remove_members(group_id)
            return
        if shard == NULL:
            return
        fresh = <Member**>calloc(<size_t>count + 1, sizeof(Member*))
        if fresh == NULL:
            raise MemoryError
        try:
            for i in range(count):
                fresh[i] = member_of(rows[i][0], rows[i][1])
            with nogil:
                group_shard_lock(shard)
                if kb_load_int(&shard.base.state) != SHARD_NOT_OWNER:
                    status = group_publish_locked(shard, &text, state, generation, fresh, count)
                shard_unlock(&shard.base)
            if status < 0:
                raise MemoryError
        finally:
            if status <= 0:
                for i in range(count):
                    member_free(fresh[i])
            free(fresh)

    def remove_members(self, str group_id not None):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef Text text = text_of(id)
        if shard == NULL:
            return
        with nogil:
            group_shard_lock(shard)
            group_hide_locked(shard, &text)
            shard_unlock(&shard.base)

    def published(self, str group_id not None):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef Text text = text_of(id)
        return None if shard == NULL else published_group(shard, &text)

    def last_heard_ms(self, str group_id not None, str member_id not None):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef bytes member_bytes = name_bytes(member_id)
        cdef Text text = text_of(id)
        cdef Text wanted = text_of(member_bytes)
        cdef Group* group
        cdef Member* member
        cdef int64_t heard_ms = 0
        if shard == NULL:
            return 0
        # No heartbeat gets in, so silence means nothing; the timer goes on.
        if shard_hangs(&shard.base):
            return kb_now_ns() // 1000000 + self._shift_ms()
        with nogil:
            group_shard_lock(shard)
            group = group_find_locked(shard, text.at, text.length)
            if group != NULL:
                member = member_find_locked(group, wanted.at, wanted.length)
                if member != NULL:
                    heard_ms = member.heard_ms
            shard_unlock(&shard.base)
        return heard_ms

    def statistics(self, int partition):
        cdef GroupShard* shard = self._group_shard(partition)
        cdef int64_t groups, offsets, count
        with nogil:
            group_shard_lock(shard)
            groups = shard.count
            offsets = shard.offset_count
            count = shard.bytes
            shard_unlock(&shard.base)
        return ShardStatistics(groups, offsets, count)

    # --- The log ----------------------------------------------------------------------------------

    def commit(self, str group_id not None, offsets, Written written=None, committer=None):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef Committer checked
        cdef Arena arena
        cdef Records records
        cdef const uint8_t** ids
        cdef Batch batch
        cdef Appended appended
        cdef int error
        cdef Py_ssize_t i
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        group = name_bytes(group_id)
        # Every record has the group's name in it: few bytes of a request could be gigabytes here.
        if sum([len(group) + len(offset.metadata) for offset in offsets]) > COMMIT_BYTES_MAX:
            return MESSAGE_TOO_LARGE
        kept = committer_of(&checked, group, committer)  # as long as `checked` points into it
        pairs = [
            (encoded_key(group, name_bytes(offset.topic), offset.partition), offset_value(offset))
            for offset in offsets
        ]
        if not pairs:
            return 0
        arena.block = NULL
        try:
            records_take(&arena, pairs, &records)
            ids = <const uint8_t**>arena_take(&arena, sizeof(uint8_t*) * <size_t>records.count)
            if ids == NULL:
                raise MemoryError
            for i in range(records.count):
                ids[i] = topic_id_at(offsets[i].topic_id)
            with nogil:
                batch_of_records(&batch, &records, kb_wall_ms() + self._shift_ms())
                group_shard_lock(shard)
                error = shard_error(&shard.base)
                if error == 0:
                    error = commit_write_locked(
                        shard, &batch, &records, ids, &checked if kept else NULL)
                shard_unlock(&shard.base)
            appended = appended_of(&batch)
        finally:
            arena_free(&arena)
        return self._written(&shard.base, error, &appended, written)

    # --- Transactions -----------------------------------------------------------------------------

    def commit_in_transaction(
        self, str group_id not None, offsets, int64_t producer_id, int16_t producer_epoch,
        Written written=None, committer=None, int64_t guard=NO_GUARD_NEEDED,
    ):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef Committer checked
        cdef Arena arena
        cdef Records records
        cdef Batch batch
        cdef Appended appended
        cdef int64_t first_offset = -1
        cdef int error
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        group = name_bytes(group_id)
        if sum([len(group) + len(offset.metadata) for offset in offsets]) > COMMIT_BYTES_MAX:
            return MESSAGE_TOO_LARGE
        kept = committer_of(&checked, group, committer)  # as long as `checked` points into it
        pairs = [
            (encoded_key(group, name_bytes(offset.topic), offset.partition), offset_value(offset))
            for offset in offsets
        ]
        if not pairs:
            return 0
        arena.block = NULL
        try:
            records_take(&arena, pairs, &records)
            # From the append to the note of it no marker of this partition is applied.
            with self._transaction_lock(shard.base.index):
                with nogil:
                    batch_of_records(&batch, &records, kb_wall_ms() + self._shift_ms())
                    batch_put_producer(&batch, producer_id, producer_epoch, guard)
                    group_shard_lock(shard)
                    error = shard_error(&shard.base)
                    if error == 0:
                        error = transaction_write_locked(shard, &batch, &checked if kept else NULL)
                    if error == 0:
                        first_offset = transaction_begun(
                            shard.base.partition, producer_id, batch.base_offset)
                    shard_unlock(&shard.base)
                if error == 0:
                    self.open_transactions.add(shard.base.index, producer_id, [
                        LoadedRecord(batch.base_offset + i, batch.max_timestamp_ms, key, value)
                        for i, (key, value) in enumerate(pairs)], first_offset)
            appended = appended_of(&batch)
        finally:
            arena_free(&arena)
        return self._written(&shard.base, error, &appended, written)

    def marker_written(
        self, int partition, int64_t producer_id, bint committed, int64_t offset,
    ):
        cdef GroupShard* shard = self._group_shard(partition)
        cdef Text key, value
        cdef int64_t log_offset
        cdef int status
        groups = set()
        with self._transaction_lock(partition):
            # What is committed holds before it is not pending any more: a fetch of stable offsets,
            # which looks without this lock, has one or the other.
            for record in self.open_transactions.before(partition, producer_id, offset):
                named = partition_of_key(record.key)
                if not committed or named is None:
                    continue
                key = text_of(record.key)
                value = nullable_text_of(record.value)
                log_offset = record.offset
                with nogil:
                    status = record_load(&shard.base, &key, &value, log_offset)
                if status == NO_MEMORY:
                    raise MemoryError
                groups.add(named[0])
            self.open_transactions.end(partition, producer_id, offset)
        return groups

    def pending(self, str group_id not None):
        if not self.open_transactions:
            return frozenset()
        named = self.open_transactions.keys(self._index_of(group_id), group_id)
        return frozenset([(topic, partition) for _, topic, partition in named.values()])

    def pending_groups(self, int partition):
        return self.open_transactions.owners(partition)

    def pending_offsets(self, int partition, producer_id=None):
        with self._transaction_lock(partition):
            return [
                (*named, topic_id_in(record.value))
                for named, record in self.open_transactions.all_of(partition, producer_id)]

    def _pending_of_others(self, str group_id, bytes topic_id):
        # (topic, partition) of a group; with an id where it is of a topic with another one.
        index = self._index_of(group_id)
        return {
            (topic, partition)
            for key, (_, topic, partition) in self.open_transactions.keys(index, group_id).items()
            if topic_id is None or any([
                _is_of_another(record, topic_id)
                for record in self.open_transactions.records(index, key)])}

    def _tombstones_of_pending(self, str group_id, named=None):
        # Under the transaction lock: what is pending of a group, or of these (topic, partition) of
        # it, as (group, topic, partition); and tombstones for those of them without an offset that
        # holds, as that has one anyway.
        pending = self.pending(group_id)
        if named is not None:
            pending = pending.intersection(named)
        if not pending:
            return set(), []
        there = {(each.topic, each.partition) for each in self.offsets(group_id)}
        tombstones = [(offset_key(group_id, *each), None) for each in sorted(pending - there)]
        return {(group_id, *each) for each in pending}, tombstones

    def _drop_pending(self, int partition, str group_id, names):
        # Under the transaction lock: offsets of these (group, topic, partition).
        self.open_transactions.drop(partition, [
            key for key, named in self.open_transactions.keys(partition, group_id).items()
            if named in names])

    def _transaction_lock(self, partition):
        return self.transaction_locks.setdefault(partition, threading.Lock())

    # --- Tombstones -------------------------------------------------------------------------------

    def remove_offsets(
        self, str group_id not None, partitions, *, int64_t committed_until_ms=-1,
        bytes topic_id=None, Written written=None,
    ):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef bytes group
        # Each once: a tombstone repeats the group's name, 8,000 times what it took to be named.
        cdef dict names = {each: name_bytes(each[0]) for each in partitions}
        cdef int64_t count = 0
        cdef Arena arena
        cdef OffsetKey* keys
        cdef MoreRecords more
        cdef list alone
        cdef const uint8_t* of_topic = topic_id_at(topic_id)
        cdef Appended appended = Appended(-1, -1, 0)
        cdef int error
        cdef Py_ssize_t i
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        group = name_bytes(group_id)
        arena.block = NULL
        try:
            keys = <OffsetKey*>arena_take(&arena, sizeof(OffsetKey) * <size_t>(len(names) + 1))
            if keys == NULL:
                raise MemoryError
            # From the append to the end of pending offsets no offset becomes pending, or holds.
            with self._transaction_lock(shard.base.index):
                pending, alone, stay = set(), [], set()
                if committed_until_ms < 0 and topic_id is None:
                    pending, alone = self._tombstones_of_pending(group_id, names)
                else:  # a tombstone would drop an offset that a transaction is about to commit
                    stay = self._pending_of_others(group_id, topic_id)
                    if committed_until_ms < 0:
                        pending, alone = self._tombstones_of_pending(
                            group_id, names.keys() - stay)
                for each, topic in names.items():
                    if each not in stay:
                        keys[count].group = text_of(group)
                        keys[count].topic = text_of(topic)
                        keys[count].partition = each[1]
                        count += 1
                more.texts = texts_of(&arena, alone)
                more.count = len(alone)
                with nogil:
                    group_shard_lock(shard)
                    error = shard_error(&shard.base)
                    if error == 0:
                        error = offsets_remove_locked(
                            shard, keys, &count, &more, committed_until_ms, of_topic,
                            kb_wall_ms() + self._shift_ms(), &appended)
                    shard_unlock(&shard.base)
                if error == 0 and self.open_transactions:
                    self._drop_pending(shard.base.index, group_id, pending | {
                        (group_id, str_of(&keys[i].topic), keys[i].partition)
                        for i in range(count)})
        finally:
            arena_free(&arena)
        return self._written(&shard.base, error, &appended, written)

    def delete_group(self, str group_id not None, records=(), Written written=None):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef bytes id
        cdef list pairs
        cdef Arena arena
        cdef MoreRecords more
        cdef Text text
        cdef Appended appended = Appended(-1, -1, 0)
        cdef int error
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        id = name_bytes(group_id)
        text = text_of(id)
        arena.block = NULL
        try:
            # From the append to the end of pending offsets no offset becomes pending, or holds.
            with self._transaction_lock(shard.base.index):
                pending, pairs = self._tombstones_of_pending(group_id)
                pairs += records
                more.texts = texts_of(&arena, pairs)
                more.count = len(pairs)
                with nogil:
                    group_shard_lock(shard)
                    error = shard_error(&shard.base)
                    if error == 0:
                        error = group_delete_locked(
                            shard, &arena, group_find_locked(shard, text.at, text.length), &more,
                            kb_wall_ms() + self._shift_ms(), &appended)
                    if error == 0:
                        group_hide_locked(shard, &text)
                    shard_unlock(&shard.base)
                if error == 0 and pending:
                    self._drop_pending(shard.base.index, group_id, pending)
        finally:
            arena_free(&arena)
        return self._written(&shard.base, error, &appended, written)

    # --- Reading ----------------------------------------------------------------------------------

    def offset(self, str group_id not None, str topic not None, int partition):
        cdef bytes name = name_bytes(topic)
        for found in self._copied(self._index_of(group_id), group_id, name):
            if found[1].partition == partition:
                return found[1]
        return None

    def offsets(self, str group_id not None):
        found = [offset for _, offset in self._copied(self._index_of(group_id), group_id)]
        found.sort()
        return found

    def fetch(
        self, str group_id not None, wanted, *, bint flexible, bint leader_epochs, topic_id_of=None,
        int64_t texts_again_max=INT64_MAX, bint named_before=False, Written stable=None,
    ):
        cdef GroupShard* shard = self._group_shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef Text text = text_of(id)
        cdef list asked
        pending = self.pending(group_id) if stable is not None else frozenset()
        if pending and wanted is None:
            wanted = _partitions_of(self.offsets(group_id), topic_id_of)
        asked = None if wanted is None else [
            (name, name_bytes(name), indexes, None if topic_id_of is None else topic_id_of(name),
             _unstable(pending, name, indexes))
            for name, indexes in wanted]
        cdef Fetched fetched
        cdef Appended appended = Appended(-1, -1, 0)
        cdef int all_written = stable is not None
        cdef int error = COORDINATOR_NOT_AVAILABLE
        fetched.form = FetchForm(flexible, leader_epochs, INT64_MAX)
        fetched_init(&fetched, asked, texts_again_max, named_before)
        try:
            if shard != NULL:
                with nogil:
                    group_shard_lock(shard)
                    error = shard_error(&shard.base)
                    if error == 0:
                        if all_written:
                            appended = shard_written_locked(&shard.base)
                        else:
                            fetched.form.high_watermark = high_watermark_of(&shard.base)
                        error = fetch_locked(
                            &fetched, group_find_locked(shard, text.at, text.length))
                    shard_unlock(&shard.base)
            if error == -1:
                raise MemoryError
            if appended.awaits_followers:
                error = self._written(&shard.base, error, &appended, stable)
            return error, fetched_topics(&fetched, asked, topic_id_of), fetched.texts
        finally:
            fetched_free(&fetched)

    def groups(self, int partition):
        return sorted({group for group, _ in self._copied(partition)})

    def expirable(self, int partition, int64_t before_ms, int64_t now_ms):
        by_group = {}
        for group, offset in self._copied(partition, None, None, (before_ms, now_ms)):
            by_group.setdefault(group, []).append(offset)
        return list(by_group.items())

    def offsets_of_others(self, int partition, topic_id_of):
        by_group = {}
        for group, offset in self._copied(partition):
            now = topic_id_of(offset.topic)
            if now is None or offset.topic_id not in (None, now):
                by_group.setdefault(group, []).append(offset)
        return list(by_group.items())

    def of_topic(self, str topic not None):
        cdef int partition
        found = []
        for partition in range(kb_load_int(&self.shards.count)):
            by_group = {}
            for group, offset in self._copied(partition, None, name_bytes(topic)):
                by_group.setdefault(group, []).append(offset)
            found += by_group.items()
        return found

    cdef int _index_of(self, str group_id) except? -1:
        cdef GroupShard* shard = self._group_shard_of(group_id)
        return -1 if shard == NULL else shard.base.index

    cdef list _copied(
        self, int partition, str group_id=None, bytes topic=None, tuple expired=None,
    ):
        # (group, CommittedOffset), of one group or all of a shard.
        cdef GroupShard* shard
        cdef bytes id = b""
        cdef Text text
        cdef Wanted wanted
        cdef Copies copies
        cdef Arena arena
        cdef int one = group_id is not None
        cdef int64_t i
        if partition < 0:
            return []
        shard = self._group_shard(partition)
        if one:
            id = name_bytes(group_id)
        text = text_of(id)
        wanted.topic.at = NULL
        if topic is not None:
            wanted.topic = text_of(topic)
        wanted.expired = expired is not None
        wanted.before_ms = wanted.now_ms = 0
        if expired is not None:
            wanted.before_ms, wanted.now_ms = expired
        arena.block = NULL
        copies.arena = &arena
        copies.items = NULL
        copies.count = copies.capacity = 0
        copies.failed = 0
        try:
            with nogil:
                copy_offsets(shard, &text if one else NULL, &wanted, &copies)
            if copies.failed:
                raise MemoryError
            return [
                (str_of(&copies.items[i].group), committed_of(&copies.items[i]))
                for i in range(copies.count)
            ]
        finally:
            copies_free(&copies)
            arena_free(&arena)
