# cython: language_level=3
"""The groups as C sees them, and the committed offsets: `GroupTable`, the face for Python.

    GroupCoordinator  -> show_members, last_heard_ms        what Heartbeat and OffsetCommit check
    GroupStore        -> open, load_batches, activate, close, append
    handlers          -> commit, remove_offsets, offsets    the Python halves of the calls
    hot path          -> the shards themselves (GroupTable.shards), without the GIL

Whoever writes to `__consumer_offsets` comes through here, Python or C, so that what the memory says
is what the log says, in its order. Any thread may call. Every method reads its arguments with the
GIL, lets go of it, takes one shard's lock, and makes objects of what it copied when it has let go
of that. The lock's rank is "session". `wake` is called behind an append, with nothing held.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from collections import namedtuple

from kbroker._arena cimport Arena, arena_free, arena_take
from kbroker._atomics cimport kb_add_i64, kb_load_i64, kb_load_int, kb_store_i64
from kbroker._log cimport PartitionLog
from kbroker._sync cimport kb_wall_ms
from kbroker.coordinator.group._copies cimport (
    Copies,
    Copy,
    Wanted,
    copies_free,
    copy_group_locked,
    copy_shard_locked,
)
from kbroker.coordinator.group._loading cimport (
    DAMAGED,
    NO_MEMORY,
    Others,
    load_records,
    record_apply_locked,
)
from kbroker.coordinator.group._members cimport (
    member_find_locked,
    member_new,
    members_clear_locked,
    members_replace_locked,
)
from kbroker.coordinator.group._offset_records cimport (
    NO_EXPIRY,
    BatchWriter,
    OffsetKey,
    OffsetValue,
    Text,
    batch_begin,
    batch_bound,
    batch_end,
    batch_put_record,
    offset_key_bytes,
    offset_value_bytes,
    put_offset_key,
    put_offset_value,
    record_bound,
)
from kbroker.coordinator.group._shards cimport (
    batch_prepare,
    group_drop_if_bare_locked,
    group_find_locked,
    group_remove_locked,
    group_shards_free,
    group_shards_grow,
    group_shards_new,
    group_take_locked,
    shard_append_locked,
    shard_clear_locked,
    shard_error_locked,
    shard_index,
    shard_lock,
    shard_unlock,
)
from kbroker.coordinator.group._structs cimport (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_DEAD,
    SHARD_ACTIVE,
    SHARD_LOADING,
    SHARD_NOT_OWNER,
    SHARDS_MAX,
    Group,
    Member,
    Shard,
)
from kbroker.log._partition cimport Batch, Partition, partition_acquire, partition_release
from kbroker.log._records cimport (
    AT_CRC,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    Header,
    batch_crc,
    header_plausible,
    header_read,
)

from kbroker.compression import Codec, CompressionError, decompress
from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol.record_batch import DECOMPRESSED_BYTES_MAX

NOT_OWNER = SHARD_NOT_OWNER
LOADING = SHARD_LOADING
ACTIVE = SHARD_ACTIVE

CommittedOffset = namedtuple("CommittedOffset", (
    "topic", "partition", "offset", "leader_epoch", "metadata", "commit_ms", "expire_ms",
    "topic_id"))
ShardStatistics = namedtuple("ShardStatistics", ("groups", "offsets", "bytes"))
LoadedRecord = namedtuple("LoadedRecord", ("offset", "timestamp_ms", "key", "value"))

cdef enum:
    UNKNOWN_SERVER_ERROR = -1
    TEXT_BYTES_MAX = 0x7fff       # of a string in a record's key
    MARKER_COMMIT = 1


cdef int _java_hash(str text) except? -1:
    cdef uint32_t mixed = 0
    cdef bytes units = text.encode("utf-16-be", "surrogatepass")
    cdef const uint8_t* at = <const uint8_t*><const char*>units
    cdef Py_ssize_t i
    for i in range(0, len(units), 2):
        mixed = 31u * mixed + ((<uint32_t>at[i] << 8) | at[i + 1])
    return <int>mixed


def partition_for(str group_id not None, int count):
    if count < 1:
        raise ValueError(f"{count} partitions")
    return shard_index(_java_hash(group_id), count)


cdef Text _text(bytes data) noexcept:
    # Good while the object lives.
    cdef Text text
    text.at = <const uint8_t*><const char*>data
    text.length = <int32_t>len(data)
    return text


cdef bytes _name(str text):
    cdef bytes data = text.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError(f"a name of {len(data)} bytes")
    return data


cdef bytes _encoded_key(bytes group, bytes topic, int32_t partition):
    cdef OffsetKey key
    cdef bytes data
    key.group = _text(group)
    key.topic = _text(topic)
    key.partition = partition
    data = bytes(offset_key_bytes(&key))
    put_offset_key(<uint8_t*><char*>data, &key)
    return data


def offset_key(str group_id not None, str topic not None, int partition):
    return _encoded_key(_name(group_id), _name(topic), partition)


def offset_value(offset):
    cdef OffsetValue value
    cdef bytes metadata = _name(offset.metadata)
    cdef bytes topic_id = offset.topic_id
    cdef bytes data
    value.offset = offset.offset
    value.leader_epoch = offset.leader_epoch
    value.commit_ms = offset.commit_ms
    value.expire_ms = offset.expire_ms
    value.metadata = _text(metadata)
    value.topic_id = NULL
    if topic_id is not None:
        if len(topic_id) != 16:
            raise ValueError("a topic id has 16 bytes")
        value.topic_id = <const uint8_t*><const char*>topic_id
    data = bytes(offset_value_bytes(&value))
    put_offset_value(<uint8_t*><char*>data, &value)
    return data


cdef str _str(const Text* text):
    return (<const char*>text.at)[:text.length].decode("utf-8", "replace")


cdef object _nullable(const Text* text):
    return None if text.length < 0 else (<const char*>text.at)[:text.length]


cdef object _committed(const Copy* copied):
    topic_id = None
    if copied.topic_id != NULL:
        topic_id = (<const char*>copied.topic_id)[:16]
    return CommittedOffset(
        _str(&copied.topic), copied.entry.partition, copied.entry.offset,
        copied.entry.leader_epoch, _str(&copied.metadata), copied.entry.commit_ms,
        copied.expire_ms, topic_id)


cdef class GroupTable:
    """One per broker. It knows no partition until `set_partition_count`."""

    def __cinit__(self):
        self.shards = group_shards_new()
        if self.shards == NULL:
            raise MemoryError
        self.logs = {}
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

    def set_bounds(self, *, int64_t metadata_bytes_max):
        kb_store_i64(&self.shards.metadata_bytes_max, metadata_bytes_max)

    cdef Shard* _shard(self, int partition) except NULL:
        if not 0 <= partition < kb_load_int(&self.shards.count):
            raise ValueError(f"__consumer_offsets has no partition {partition}")
        return self.shards.shards[partition]

    cdef Shard* _shard_of(self, str group_id):
        # NULL: there is no topic.
        cdef int count = kb_load_int(&self.shards.count)
        if count == 0:
            return NULL
        return self.shards.shards[shard_index(_java_hash(group_id), count)]

    # --- Shards -----------------------------------------------------------------------------------

    def open(self, int partition, PartitionLog log not None):
        self._change(partition, SHARD_LOADING, log)

    def activate(self, int partition):
        cdef Shard* shard = self._shard(partition)
        with nogil:
            shard_lock(shard)
            if shard.state == SHARD_LOADING:
                shard.state = SHARD_ACTIVE
            shard_unlock(shard)

    def close(self, int partition):
        self._change(partition, SHARD_NOT_OWNER, None)

    cdef _change(self, int partition, int state, PartitionLog log):
        cdef Shard* shard = self._shard(partition)
        cdef Partition* mine = NULL
        cdef Partition* theirs
        if log is not None:
            mine = log.partition
            partition_acquire(mine)
            self.logs[partition] = log
        with nogil:
            shard_lock(shard)
            shard.state = state
            theirs = shard.partition
            shard.partition = mine
            shard_clear_locked(shard)
            shard_unlock(shard)
            if theirs != NULL:
                partition_release(theirs)
        if log is None:
            self.logs.pop(partition, None)
        for key in [key for key in self.open_transactions if key[0] == partition]:
            self.open_transactions.pop(key, None)

    def shard_state(self, int partition):
        cdef Shard* shard = self._shard(partition)
        cdef int state
        with nogil:
            shard_lock(shard)
            state = shard.state
            shard_unlock(shard)
        return state

    def state_of(self, str group_id not None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef int error = COORDINATOR_NOT_AVAILABLE
        if shard != NULL:
            with nogil:
                shard_lock(shard)
                error = shard_error_locked(shard)
                shard_unlock(shard)
        return error

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
        found = []
        while len(data) - at >= HEADER_BYTES:
            used = self._load_batch(shard, data, at, found)
            if used == 0:
                break
            at += used
        return at, found

    cdef int _load_batch(self, Shard* shard, bytes data, Py_ssize_t at, list found) except -1:
        # Its size; 0: it is cut off.
        cdef uint8_t* start = <uint8_t*><char*>data + at
        cdef Header header
        cdef Others others
        cdef bytes unpacked
        cdef uint8_t* records
        cdef int64_t length
        cdef int status, transactional
        header_read(start, &header)
        if not header_plausible(&header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch at byte {at}")
        if header.size_bytes > len(data) - at:
            return 0
        with nogil:
            status = batch_crc(start, header.size_bytes) == header.crc
        if not status:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"the batch at {header.base_offset} is damaged")
        records = start + HEADER_BYTES
        length = header.size_bytes - HEADER_BYTES
        if header.attributes & CODEC_MASK:
            unpacked = _unpacked(
                header.attributes & CODEC_MASK, data[at + HEADER_BYTES:at + header.size_bytes])
            records = <uint8_t*><char*>unpacked
            length = len(unpacked)
        transactional = header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
        others.items = NULL
        others.count = 0
        others.capacity = 0
        try:
            with nogil:
                status = load_records(
                    shard, records, length, header.record_count, header.base_offset,
                    header.base_timestamp_ms, not transactional, &others)
            if status == NO_MEMORY:
                raise MemoryError
            if status == DAMAGED:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the records of the batch at {header.base_offset} are damaged")
            listed = [
                LoadedRecord(others.items[i].offset, others.items[i].timestamp_ms,
                             _nullable(&others.items[i].key), _nullable(&others.items[i].value))
                for i in range(others.count)
            ]
        finally:
            free(others.items)
        if transactional:
            self._load_transactional(
                shard, header.producer_id, header.attributes & CONTROL_BIT, listed, found)
        else:
            found += listed
        return <int>header.size_bytes

    cdef int _load_transactional(
        self, Shard* shard, int64_t producer_id, int control, list records, list found,
    ) except -1:
        # What a transaction has written counts with its marker, or never.
        cdef Text key, value
        cdef int64_t offset
        cdef int status
        place = (shard.index, producer_id)
        if not control:
            self.open_transactions.setdefault(place, []).extend(records)
            return 0
        for marker in records:
            waiting = self.open_transactions.pop(place, ())
            if marker.key is None or marker.key[2:4] != b"\0\1":
                continue
            for record in waiting:
                if record.key is None:
                    continue
                key = _text(record.key)
                value.at = NULL
                value.length = -1
                if record.value is not None:
                    value = _text(record.value)
                offset = record.offset
                with nogil:
                    shard_lock(shard)
                    status = record_apply_locked(shard, &key, &value, offset)
                    shard_unlock(shard)
                if status == NO_MEMORY:
                    raise MemoryError
                if status != 1:
                    found.append(record)
        return 0

    # --- HotView ----------------------------------------------------------------------------------

    def show_members(self, str group_id not None, *, int state, int generation, members):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id = _name(group_id)
        cdef Text text = _text(id)
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
                fresh[i] = _member(shown[i][0], shown[i][1])
            with nogil:
                shard_lock(shard)
                if shard.state != SHARD_NOT_OWNER:
                    status = _show_locked(shard, &text, state, generation, fresh, count)
                shard_unlock(shard)
            if status < 0:
                raise MemoryError
        finally:
            if status <= 0:
                for i in range(count):
                    free(fresh[i])
            free(fresh)

    def remove_members(self, str group_id not None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id = _name(group_id)
        cdef Text text = _text(id)
        cdef Group* group
        if shard == NULL:
            return
        with nogil:
            shard_lock(shard)
            group = group_find_locked(shard, text.at, text.length)
            if group != NULL:
                members_clear_locked(shard, group)
                group.shown = 0
                group_drop_if_bare_locked(shard, group)
            shard_unlock(shard)

    def last_heard_ms(self, str group_id not None, str member_id not None):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id = _name(group_id)
        cdef bytes member_bytes = _name(member_id)
        cdef Text text = _text(id)
        cdef Text wanted = _text(member_bytes)
        cdef Group* group
        cdef Member* member
        cdef int64_t heard_ms = 0
        if shard == NULL:
            return 0
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

    def append(self, int partition, records):
        cdef Shard* shard = self._shard(partition)
        return self._append(shard, list(records))

    cdef int _append(self, Shard* shard, list pairs) except? -2:
        # One batch, applied and, with nothing held, told to who waits for the log.
        cdef Py_ssize_t count = len(pairs)
        cdef Arena arena
        cdef Text* texts
        cdef Batch batch
        cdef size_t bound = batch_bound()
        cdef uint8_t* memory
        cdef int error = 0
        cdef Py_ssize_t i
        if count == 0:
            return 0
        arena.block = NULL
        try:
            texts = <Text*>arena_take(&arena, 2 * sizeof(Text) * <size_t>count)
            if texts == NULL:
                raise MemoryError
            for i in range(count):
                key, value = pairs[i]
                texts[2 * i] = _text(key)
                texts[2 * i + 1].length = -1
                if value is not None:
                    texts[2 * i + 1] = _text(value)
                bound += record_bound(texts[2 * i].length, texts[2 * i + 1].length)
            memory = <uint8_t*>arena_take(&arena, bound)
            if memory == NULL:
                raise MemoryError
            with nogil:
                _build(&batch, memory, texts, count, kb_wall_ms() + self._shift_ms())
                shard_lock(shard)
                error = shard_error_locked(shard)
                if error == 0:
                    error = _write_locked(shard, &batch, texts, count)
                shard_unlock(shard)
        finally:
            arena_free(&arena)
        if error == 0 and self.wake is not None:
            log = self.logs.get(shard.index)
            if log is not None:
                self.wake(log)
        return error

    cdef int64_t _shift_ms(self) noexcept nogil:
        return kb_load_i64(&self.shards.clock_shift_ms)

    def commit(self, str group_id not None, offsets):
        cdef Shard* shard = self._shard_of(group_id)
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        group = _name(group_id)
        return self._append(shard, [
            (_encoded_key(group, _name(offset.topic), offset.partition), offset_value(offset))
            for offset in offsets
        ])

    def remove_offsets(self, str group_id not None, partitions):
        cdef Shard* shard = self._shard_of(group_id)
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        there = {(offset.topic, offset.partition) for offset in self.offsets(group_id)}
        group = _name(group_id)
        return self._append(shard, [
            (_encoded_key(group, _name(topic), partition), None)
            for topic, partition in partitions if (topic, partition) in there
        ])

    def delete_group(self, str group_id not None, records=()):
        cdef Shard* shard = self._shard_of(group_id)
        cdef bytes id
        cdef Text text
        cdef Group* group
        cdef int error
        if shard == NULL:
            return COORDINATOR_NOT_AVAILABLE
        id = _name(group_id)
        text = _text(id)
        gone = [
            (_encoded_key(id, _name(offset.topic), offset.partition), None)
            for offset in self.offsets(group_id)
        ]
        error = self._append(shard, [*gone, *records])
        if error == 0:
            with nogil:
                shard_lock(shard)
                group = group_find_locked(shard, text.at, text.length)
                # A commit may have come in between; it is in the log, so it stays.
                if group != NULL:
                    members_clear_locked(shard, group)
                    group.shown = 0
                    group_drop_if_bare_locked(shard, group)
                shard_unlock(shard)
        return error

    # --- Reading ----------------------------------------------------------------------------------

    def offset(self, str group_id not None, str topic not None, int partition):
        cdef bytes name = _name(topic)
        for found in self._copied(self._index_of(group_id), group_id, name):
            if found[1].partition == partition:
                return found[1]
        return None

    def offsets(self, str group_id not None):
        found = [offset for _, offset in self._copied(self._index_of(group_id), group_id)]
        found.sort()
        return found

    def groups(self, int partition):
        return sorted({group for group, _ in self._copied(partition)})

    def expirable(self, int partition, int64_t before_ms, int64_t now_ms):
        by_group = {}
        for group, offset in self._copied(partition, None, None, (before_ms, now_ms)):
            by_group.setdefault(group, []).append(offset)
        return list(by_group.items())

    def of_topic(self, str topic not None):
        cdef int partition
        found = []
        for partition in range(kb_load_int(&self.shards.count)):
            by_group = {}
            for group, offset in self._copied(partition, None, _name(topic)):
                by_group.setdefault(group, []).append(offset.partition)
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
            id = _name(group_id)
        text = _text(id)
        wanted.topic.at = NULL
        if topic is not None:
            wanted.topic = _text(topic)
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
                _copy(shard, &text if one else NULL, &wanted, &copies)
            if copies.failed:
                raise MemoryError
            return [
                (_str(&copies.items[i].group), _committed(&copies.items[i]))
                for i in range(copies.count)
            ]
        finally:
            copies_free(&copies)
            arena_free(&arena)


cdef bytes _unpacked(int codec, bytes packed):
    try:
        return decompress(Codec(codec), packed, DECOMPRESSED_BYTES_MAX)
    except (CompressionError, ValueError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


cdef Member* _member(str member_id, str instance_id) except NULL:
    cdef bytes id = _name(member_id)
    cdef bytes instance = b"" if instance_id is None else _name(instance_id)
    cdef Member* member = member_new(
        <const uint8_t*><const char*>id, <int32_t>len(id),
        <const uint8_t*><const char*>instance,
        -1 if instance_id is None else <int32_t>len(instance))
    if member == NULL:
        raise MemoryError
    return member


cdef int _show_locked(
    Shard* shard, const Text* id, int state, int generation, Member** members, int32_t count,
) noexcept nogil:
    # 1: the members are the group's now; -1: no memory.
    cdef Group* group = group_take_locked(shard, id.at, id.length)
    if group == NULL or members_replace_locked(shard, group, members, count) != 0:
        return -1
    group.shown = 1
    group.state = state
    group.generation = generation
    return 1


cdef void _build(
    Batch* batch, uint8_t* memory, const Text* texts, Py_ssize_t count, int64_t now_ms,
) noexcept nogil:
    cdef BatchWriter writer
    cdef Py_ssize_t i
    batch_begin(&writer, memory, now_ms)
    for i in range(count):
        batch_put_record(&writer, &texts[2 * i], &texts[2 * i + 1])
    batch_prepare(batch, memory, batch_end(&writer), <int32_t>count, now_ms)


cdef int _write_locked(
    Shard* shard, Batch* batch, const Text* texts, Py_ssize_t count,
) noexcept nogil:
    cdef Py_ssize_t i
    shard_append_locked(shard, batch, batch.max_timestamp_ms)
    if batch.error != 0:
        return batch.error
    for i in range(count):
        if record_apply_locked(
            shard, &texts[2 * i], &texts[2 * i + 1], batch.base_offset + i,
        ) == NO_MEMORY:
            return UNKNOWN_SERVER_ERROR
    return 0


cdef void _copy(
    Shard* shard, const Text* id, const Wanted* wanted, Copies* copies,
) noexcept nogil:
    cdef Group* group
    shard_lock(shard)
    if id == NULL:
        copy_shard_locked(copies, shard, wanted)
    else:
        group = group_find_locked(shard, id.at, id.length)
        if group != NULL:
            copy_group_locked(copies, group, wanted)
    shard_unlock(shard)
