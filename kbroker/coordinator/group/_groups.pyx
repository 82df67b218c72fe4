# cython: language_level=3
"""The groups as C sees them, and the committed offsets: `GroupTable`, the face for Python.

    GroupCoordinator  -> show_members, last_heard_ms        what Heartbeat and OffsetCommit check
    GroupStore        -> open, load_batches, activate, close, append
    handlers          -> commit, remove_offsets, offsets    the Python halves of the calls
    hot path          -> the shards themselves (GroupTable.shards), without the GIL

Whoever writes to `__consumer_offsets` comes through here, Python or C, so that what the memory says
is what the log says, in its order; `when_replicated` says when the followers have it, too. Any
thread may call. Every method reads its arguments with the
GIL, lets go of it, takes one shard's lock, and makes objects of what it copied when it has let go
of that. The lock's rank is "session". The listener is called after an append, with nothing held.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport usleep

from kbroker.coordinator.group._copies cimport Copies, Wanted, copies_free, copy_offsets
from kbroker.coordinator.group._fetching cimport Fetched, FetchForm, fetch_locked, fetched_free
from kbroker.coordinator.group._members cimport member_find_locked, member_free
from kbroker.coordinator.group._offset_records cimport OffsetKey
from kbroker.coordinator.group._offsets cimport high_watermark_of
from kbroker.coordinator.group._python cimport (
    committed_of, committer_of, encoded_key, fetched_init, fetched_topics, java_hash, load_batch,
    member_of, name_bytes, shown_group, str_of, text_of, texts_of, topic_id_at)
from kbroker.coordinator.group._python import (
    CommittedOffset,
    LoadedBatches,
    LoadedRecord,
    ShardStatistics,
    offset_key,
    offset_value,
    partition_for,
)
from kbroker.coordinator.group._shards cimport (
    appended_of, coordinator_error, group_find_locked, group_hide_locked, group_shards_free,
    group_shards_grow, group_shards_new, group_show_locked, shard_clear_locked, shard_error,
    shard_index, shard_lock, shard_note_directory_locked, shard_stands, shard_unlock,
    shard_written_locked)
from kbroker.coordinator.group._structs cimport (
    GROUP_DEAD, SHARD_ACTIVE, SHARD_LOADING, SHARD_NOT_OWNER, SHARDS_MAX, Appended, Group, Member,
    Shard)
from kbroker.coordinator.group._tombstones cimport (
    Behind, group_delete_locked, offsets_remove_locked)
from kbroker.coordinator.group._writing cimport Committer, records_write_locked
from kbroker.coordinator.runtime._batches cimport Text, batch_bound, batch_of_records, record_bound
from kbroker.core._arena cimport Arena, arena_free, arena_take
from kbroker.core._atomics cimport kb_cas_int, kb_load_i64, kb_load_int, kb_store_i64, kb_store_int
from kbroker.core._error_codes cimport (
    COORDINATOR_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE, NOT_COORDINATOR,
    UNKNOWN_SERVER_ERROR)
from kbroker.core._lock_order cimport RANK_SESSION, try_lock_ranked
from kbroker.core._sync cimport kb_now_ns, kb_wall_ms
from kbroker.errors import ErrorCode
from kbroker.log.engine._records cimport HEADER_BYTES
from kbroker.log.engine._types cimport Batch
from kbroker.replica._partition cimport Partition, partition_acquire, partition_release
from kbroker.replica._replica cimport Replica

__all__ = [
    "ACTIVE",
    "LOADING",
    "NOT_OWNER",
    "CommittedOffset",
    "GroupTable",
    "LoadedBatches",
    "LoadedRecord",
    "ShardStatistics",
    "Written",
    "offset_key",
    "offset_value",
    "partition_for",
]

cdef enum:
    COMMIT_BYTES_MAX = 64 << 20   # no log takes so large a batch
    CHANGE_WAIT_MS = 20           # for who has the lock
    WRITE_TIMEOUT_MS = 5000
    METADATA_BYTES_MAX = 4096
    LOCK_POLL_US = 50
    NS_PER_MS = 1000000

NOT_OWNER = SHARD_NOT_OWNER
LOADING = SHARD_LOADING
ACTIVE = SHARD_ACTIVE


cdef int _lock_until(Shard* shard, int64_t until_ns) noexcept nogil:
    while not try_lock_ranked(&shard.lock, RANK_SESSION):
        if kb_now_ns() >= until_ns:
            return 0
        usleep(LOCK_POLL_US)
    return 1


cdef class Written:
    """What one call has written, for `when_replicated`; once."""


cdef class GroupTable:
    """One per broker. It knows no partition until `set_partition_count`."""

    def __cinit__(
        self, listener=None, *, int64_t write_timeout_ms=WRITE_TIMEOUT_MS,
        int64_t metadata_bytes_max=METADATA_BYTES_MAX,
    ):
        self.listener = listener
        self.metadata_bytes_max = metadata_bytes_max
        self.shards = group_shards_new()
        if self.shards == NULL:
            raise MemoryError
        self.shards.write_timeout_ms = write_timeout_ms
        self.replicas = {}
        self.open_transactions = {}

    def __dealloc__(self):
        group_shards_free(self.shards)

    @property
    def partition_count(self):
        return kb_load_int(&self.shards.count)

    def set_partition_count(self, int count):
        if not 0 <= count <= SHARDS_MAX:
            raise ValueError(f"{count} partitions")
        if group_shards_grow(self.shards, count) != 0:
            raise MemoryError

    def set_clock_shift_ms(self, int64_t shift_ms):
        kb_store_i64(&self.shards.clock_shift_ms, shift_ms)

    cdef Shard* _shard(self, int partition) except NULL:
        if not 0 <= partition < kb_load_int(&self.shards.count):
            raise ValueError(f"__consumer_offsets has no partition {partition}")
        return self.shards.shards[partition]

    cdef Shard* _shard_of(self, str group_id):
        # NULL: there is no topic.
        cdef int count = kb_load_int(&self.shards.count)
        if count == 0:
            return NULL
        return self.shards.shards[shard_index(java_hash(group_id), count)]

    # --- Shards -----------------------------------------------------------------------------------

    def open(self, int partition, Replica replica not None, int64_t wait_ms=CHANGE_WAIT_MS):
        return self._change(partition, SHARD_LOADING, replica, wait_ms)

    def activate(self, int partition):
        kb_cas_int(&self._shard(partition).state, SHARD_LOADING, SHARD_ACTIVE)

    def close(self, int partition, int64_t wait_ms=CHANGE_WAIT_MS):
        return self._change(partition, SHARD_NOT_OWNER, None, wait_ms)

    cdef _change(self, int partition, int state, Replica replica, int64_t wait_ms):
        cdef Shard* shard = self._shard(partition)
        cdef Partition* mine = NULL
        cdef Partition* theirs = NULL
        cdef int locked
        # Who has the lock may be at a write that hangs. Nobody who takes it next finds it ours.
        kb_store_int(&shard.state, SHARD_NOT_OWNER)
        if replica is not None:
            mine = replica.partition
        with nogil:
            locked = _lock_until(shard, kb_now_ns() + wait_ms * NS_PER_MS)
            if locked:
                if mine != NULL:
                    partition_acquire(mine)
                theirs = shard.partition
                shard.partition = mine
                if mine != NULL:
                    shard_note_directory_locked(shard)
                shard_clear_locked(shard)
                kb_store_int(&shard.state, state)
                shard_unlock(shard)
            if theirs != NULL:
                partition_release(theirs)
        if not locked:
            return False
        if replica is None:
            self.replicas.pop(partition, None)
        else:
            self.replicas[partition] = replica
        for key in [key for key in self.open_transactions if key[0] == partition]:
            self.open_transactions.pop(key, None)
        return True

    def shard_state(self, int partition):
        return kb_load_int(&self._shard(partition).state)

    def state_of(self, str group_id not None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef int error = COORDINATOR_NOT_AVAILABLE
        return error if shard == NULL else shard_error(shard)

    def statistics(self, int partition):
        cdef Shard* shard = self._shard(partition)
        cdef int64_t groups, offsets, count
        with nogil:
            shard_lock(shard)
            groups = shard.count
            offsets = shard.offset_count
            count = shard.bytes
            shard_unlock(shard)
        return ShardStatistics(groups, offsets, count)

    # --- Loading ----------------------------------------------------------------------------------

    def load_batches(self, int partition, bytes data not None):
        cdef Shard* shard = self._shard(partition)
        cdef Py_ssize_t at = 0
        cdef int used
        cdef int64_t following = -1
        found, left_out = [], []
        while len(data) - at >= HEADER_BYTES:
            used = load_batch(shard, data, at, found, left_out, self.open_transactions, &following)
            if used == 0:
                break
            at += used
        return LoadedBatches(at, following, found, left_out)

    # --- HotView ----------------------------------------------------------------------------------

    def show_members(self, str group_id not None, *, int state, int generation, members):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef Text text = text_of(id)
        cdef list shown = list(members)
        cdef int32_t count = <int32_t>len(shown)
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
                fresh[i] = member_of(shown[i][0], shown[i][1])
            with nogil:
                shard_lock(shard)
                if kb_load_int(&shard.state) != SHARD_NOT_OWNER:
                    status = group_show_locked(shard, &text, state, generation, fresh, count)
                shard_unlock(shard)
            if status < 0:
                raise MemoryError
        finally:
            if status <= 0:
                for i in range(count):
                    member_free(fresh[i])
            free(fresh)

    def remove_members(self, str group_id not None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef Text text = text_of(id)
        if shard == NULL:
            return
        with nogil:
            shard_lock(shard)
            group_hide_locked(shard, &text)
            shard_unlock(shard)

    def shown(self, str group_id not None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef Text text = text_of(id)
        return None if shard == NULL else shown_group(shard, &text)

    def last_heard_ms(self, str group_id not None, str member_id not None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef bytes member_bytes = name_bytes(member_id)
        cdef Text text = text_of(id)
        cdef Text wanted = text_of(member_bytes)
        cdef Group* group
        cdef Member* member
        cdef int64_t heard_ms = 0
        if shard == NULL:
            return 0
        if shard_stands(shard):   # nobody can be heard, so silence means nothing; the timer goes on
            return kb_now_ns() // 1000000 + self._shift_ms()
        with nogil:
            shard_lock(shard)
            group = group_find_locked(shard, text.at, text.length)
            if group != NULL:
                member = member_find_locked(group, wanted.at, wanted.length)
                if member != NULL:
                    heard_ms = member.heard_ms
            shard_unlock(shard)
        return heard_ms

    # --- The log ----------------------------------------------------------------------------------

    def append(self, int partition, records, Written written=None):
        cdef Shard* shard = self._shard(partition)
        return self._append(shard, list(records), None, written, NULL)

    cdef int _append(
        self, Shard* shard, list pairs, list topic_ids, Written written, const Committer* committer,
    ) except? -2:
        # One batch, applied and, with nothing held, told to who waits for the log.
        cdef Py_ssize_t count = len(pairs)
        cdef Arena arena
        cdef Text* texts
        cdef const uint8_t** ids
        cdef Batch batch
        cdef Appended appended
        cdef size_t bound = batch_bound()
        cdef uint8_t* memory
        cdef int error = 0
        cdef Py_ssize_t i
        if count == 0:
            return 0
        arena.block = NULL
        try:
            texts = texts_of(&arena, pairs)
            ids = <const uint8_t**>arena_take(&arena, sizeof(uint8_t*) * <size_t>count)
            if ids == NULL:
                raise MemoryError
            for i in range(count):
                ids[i] = topic_id_at(None if topic_ids is None else topic_ids[i])
                bound += record_bound(texts[2 * i].length, texts[2 * i + 1].length)
            memory = <uint8_t*>arena_take(&arena, bound)
            if memory == NULL:
                raise MemoryError
            with nogil:
                batch_of_records(&batch, memory, texts, count, kb_wall_ms() + self._shift_ms())
                shard_lock(shard)
                error = shard_error(shard)
                if error == 0:
                    error = records_write_locked(shard, &batch, texts, ids, count, committer)
                shard_unlock(shard)
            appended = appended_of(&batch)
        finally:
            arena_free(&arena)
        return self._written(shard, error, &appended, written)

    cdef int _written(
        self, Shard* shard, int error, const Appended* appended, Written written,
    ) except? -2:
        # With nothing held: to the disk, where the topic asks for it, and whoever reads the log is
        # told of what is new there. The error of the whole.
        cdef Replica replica
        if error != 0:
            return error
        if (found := self.replicas.get(shard.index)) is None:  # led elsewhere since it was written
            return NOT_COORDINATOR if appended.awaits_followers else 0
        replica = found
        try:
            replica.flush_if_due()
        except OSError:
            return coordinator_error(KAFKA_STORAGE_ERROR)
        if self.listener is not None:
            self.listener.wake(replica)
        if written is not None and appended.awaits_followers:
            written.appended = appended[0]
            written.replica = replica
        return 0

    def written_before(self, str group_id not None, Written written not None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef Appended appended = Appended(-1, -1, 0)
        cdef int error
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        with nogil:
            shard_lock(shard)
            error = shard_error(shard)
            if error == 0:
                appended = shard_written_locked(shard)
            shard_unlock(shard)
        return self._written(shard, error, &appended, written)

    def when_replicated(self, Written written not None, int code, done not None):
        if code == MESSAGE_TOO_LARGE:    # clients of a coordinator do not know that word
            code = UNKNOWN_SERVER_ERROR
        if code != 0 or written.replica is None or self.listener is None:
            done(ErrorCode(code))
            return
        self.listener.await_followers(
            written.replica, written.appended.last_offset, written.appended.led_since,
            self.shards.write_timeout_ms, done)

    cdef int64_t _shift_ms(self) noexcept nogil:
        return kb_load_i64(&self.shards.clock_shift_ms)

    def commit(self, str group_id not None, offsets, Written written=None, committer=None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef Committer checked
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        group = name_bytes(group_id)
        # Every record has the group's name in it: few bytes of a request could be gigabytes here.
        if sum([len(group) + len(offset.metadata) for offset in offsets]) > COMMIT_BYTES_MAX:
            return MESSAGE_TOO_LARGE
        kept = committer_of(&checked, group, committer)  # as long as `checked` points into it
        return self._append(shard, [
            (encoded_key(group, name_bytes(offset.topic), offset.partition), offset_value(offset))
            for offset in offsets
        ], [offset.topic_id for offset in offsets], written, &checked if kept else NULL)

    def remove_offsets(
        self, str group_id not None, partitions, *, int64_t committed_until_ms=-1,
        bytes topic_id=None, Written written=None,
    ):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes group
        # Each once: a tombstone repeats the group's name, 8,000 times what it took to be named.
        cdef list names = [(name_bytes(topic), at) for topic, at in dict.fromkeys(partitions)]
        cdef Py_ssize_t count = len(names)
        cdef Arena arena
        cdef OffsetKey* keys
        cdef const uint8_t* of_topic = topic_id_at(topic_id)
        cdef Appended appended = Appended(-1, -1, 0)
        cdef int error
        cdef Py_ssize_t i
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        group = name_bytes(group_id)
        arena.block = NULL
        try:
            keys = <OffsetKey*>arena_take(&arena, sizeof(OffsetKey) * <size_t>(count + 1))
            if keys == NULL:
                raise MemoryError
            for i in range(count):
                keys[i].group = text_of(group)
                keys[i].topic = text_of(names[i][0])
                keys[i].partition = names[i][1]
            with nogil:
                shard_lock(shard)
                error = shard_error(shard)
                if error == 0:
                    error = offsets_remove_locked(
                        shard, &arena, keys, count, committed_until_ms, of_topic,
                        kb_wall_ms() + self._shift_ms(), &appended)
                shard_unlock(shard)
        finally:
            arena_free(&arena)
        return self._written(shard, error, &appended, written)

    def delete_group(self, str group_id not None, records=(), Written written=None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id
        cdef list pairs = list(records)
        cdef Arena arena
        cdef Behind behind
        cdef Text text
        cdef Appended appended = Appended(-1, -1, 0)
        cdef int error
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        id = name_bytes(group_id)
        text = text_of(id)
        arena.block = NULL
        try:
            behind.texts = texts_of(&arena, pairs)
            behind.count = len(pairs)
            with nogil:
                shard_lock(shard)
                error = shard_error(shard)
                if error == 0:
                    error = group_delete_locked(
                        shard, &arena, group_find_locked(shard, text.at, text.length), &behind,
                        kb_wall_ms() + self._shift_ms(), &appended)
                if error == 0:
                    group_hide_locked(shard, &text)
                shard_unlock(shard)
        finally:
            arena_free(&arena)
        return self._written(shard, error, &appended, written)

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
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id = name_bytes(group_id)
        cdef Text text = text_of(id)
        cdef list asked = None if wanted is None else [
            (name, name_bytes(name), indexes, None if topic_id_of is None else topic_id_of(name))
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
                    shard_lock(shard)
                    error = shard_error(shard)
                    if error == 0:
                        if all_written:
                            appended = shard_written_locked(shard)
                        else:
                            fetched.form.high_watermark = high_watermark_of(shard)
                        error = fetch_locked(
                            &fetched, group_find_locked(shard, text.at, text.length))
                    shard_unlock(shard)
            if error == -1:
                raise MemoryError
            if appended.awaits_followers:
                error = self._written(shard, error, &appended, stable)
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
        cdef Shard* shard = self._shard_of(group_id)
        return -1 if shard == NULL else shard.index

    cdef list _copied(
        self, int partition, str group_id=None, bytes topic=None, tuple expired=None,
    ):
        # (group, CommittedOffset), of one group or all of a shard.
        cdef Shard* shard
        cdef bytes id = b""
        cdef Text text
        cdef Wanted wanted
        cdef Copies copies
        cdef Arena arena
        cdef int one = group_id is not None
        cdef int64_t i
        if partition < 0:
            return []
        shard = self._shard(partition)
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
