# cython: language_level=3
"""Between the runtime's C half and Python's objects: keys, records, loaded batches.

Everything here holds the GIL and no lock. A `Text` of a bytes object is good while that object
lives. A batch is loaded in two steps: what it holds is walked without the GIL, and what Python must
look at becomes objects after that.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memset

from collections import namedtuple

from kbroker.coordinator.runtime._batches cimport Records, Text, batch_bound, record_bound
from kbroker.coordinator.runtime._loading cimport Others, load_records, record_load
from kbroker.coordinator.runtime._shards cimport shard_index
from kbroker.coordinator.runtime._structs cimport FOR_PYTHON, NO_MEMORY, Shard
from kbroker.core._arena cimport Arena, arena_take
from kbroker.core._limits cimport TEXT_BYTES_MAX
from kbroker.log.engine._records cimport (
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
from kbroker.outside_text import untellable

LoadedRecord = namedtuple("LoadedRecord", ("offset", "timestamp_ms", "key", "value"))
LoadedBatches = namedtuple(
    "LoadedBatches", ("used_bytes", "next_offset", "records", "left_out"))


# --- keys and records ----------------------------------------------------------------------------

cdef int java_hash(str text) except? -1:
    # Of any text, in units of UTF-16; requests in C have ASCII (java_hash_ascii).
    cdef uint32_t mixed = 0
    cdef bytes units = text.encode("utf-16-be", "surrogatepass")
    cdef const uint8_t* at = <const uint8_t*><const char*>units
    cdef Py_ssize_t i
    for i in range(0, len(units), 2):
        mixed = 31u * mixed + ((<uint32_t>at[i] << 8) | at[i + 1])
    return <int>mixed


def partition_for(str key not None, int count):
    if count < 1:
        raise ValueError(f"{count} partitions")
    return shard_index(java_hash(key), count)


cdef Text text_of(bytes data) noexcept:
    # Good while the object lives.
    cdef Text text
    text.at = <const uint8_t*><const char*>data
    text.length = <int32_t>len(data)
    return text


cdef Text nullable_text_of(bytes data) noexcept:
    cdef Text text
    if data is not None:
        return text_of(data)
    text.at = NULL
    text.length = -1
    return text


cdef Text* texts_of(Arena* arena, list pairs) except NULL:
    cdef Py_ssize_t count = len(pairs)
    cdef Text* texts = <Text*>arena_take(arena, 2 * sizeof(Text) * <size_t>(count + 1))
    cdef Py_ssize_t i
    if texts == NULL:
        raise MemoryError
    for i in range(count):
        key, value = pairs[i]
        texts[2 * i] = text_of(key)
        texts[2 * i + 1] = nullable_text_of(value)
    return texts


cdef bytes name_bytes(str text):
    cdef bytes data = text.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise untellable(len(data))
    return data


cdef int records_take(Arena* arena, list pairs, Records* records) except -1:
    cdef size_t bound = batch_bound()
    cdef Py_ssize_t i
    records.count = len(pairs)
    records.texts = texts_of(arena, pairs)
    for i in range(records.count):
        bound += record_bound(records.texts[2 * i].length, records.texts[2 * i + 1].length)
    records.memory = <uint8_t*>arena_take(arena, bound)
    if records.memory == NULL:
        raise MemoryError
    return 0


cdef str str_of(const Text* text):
    return (<const char*>text.at)[:text.length].decode("utf-8", "replace")


cdef object nullable_bytes(const Text* text):
    return None if text.length < 0 else (<const char*>text.at)[:text.length]


# --- loading -------------------------------------------------------------------------------------

cdef int load_batch(
    Shard* shard, bytes data, Py_ssize_t at, list found, list left_out, open_transactions,
    int64_t* next_offset,
) except -1:
    # Its size; 0: it is cut off.
    cdef uint8_t* start = <uint8_t*><char*>data + at
    cdef Header header
    header_read(start, &header)
    if not header_plausible(&header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch at byte {at}")
    if header.size_bytes > len(data) - at:
        return 0
    next_offset[0] = header.base_offset + header.last_offset_delta + 1
    trouble = _load_sound_batch(
        shard, &header, data, at, found, open_transactions) if _has_its_crc(
            start, &header) else "its CRC is not that of its bytes"
    if trouble is not None:
        left_out.append((header.base_offset, trouble))
    return <int>header.size_bytes


cdef int _has_its_crc(const uint8_t* start, const Header* header) noexcept:
    cdef int sound
    with nogil:
        sound = batch_crc(start, header.size_bytes) == header.crc
    return sound


cdef object _load_sound_batch(
    Shard* shard, const Header* header, bytes data, Py_ssize_t at, list found,
    open_transactions,
):
    # What cannot be read of it, or None.
    cdef bytes unpacked
    cdef uint8_t* records = <uint8_t*><char*>data + at + HEADER_BYTES
    cdef int64_t length = header.size_bytes - HEADER_BYTES
    cdef Others others, tombstones
    cdef int status, has_pending
    cdef int transactional = header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
    if header.attributes & CODEC_MASK:
        try:
            unpacked = decompress(
                Codec(header.attributes & CODEC_MASK),
                data[at + HEADER_BYTES:at + header.size_bytes])
        except (CompressionError, ValueError) as error:
            return str(error)
        records = <uint8_t*><char*>unpacked
        length = len(unpacked)
    memset(&others, 0, sizeof(others))
    memset(&tombstones, 0, sizeof(tombstones))
    has_pending = not transactional and open_transactions.has(shard.index)
    try:
        with nogil:
            status = load_records(
                shard, records, length, header.record_count, header.base_offset,
                header.base_timestamp_ms, not transactional, &others,
                &tombstones if has_pending else NULL)
        if status == NO_MEMORY:
            raise MemoryError
        listed = [
            LoadedRecord(
                others.items[i].offset, others.items[i].timestamp_ms,
                nullable_bytes(&others.items[i].key), nullable_bytes(&others.items[i].value))
            for i in range(others.count)
        ]
        if tombstones.count > 0:
            open_transactions.drop(shard.index, {
                nullable_bytes(&tombstones.items[i].key) for i in range(tombstones.count)})
    finally:
        free(others.items)
        free(tombstones.items)
    if transactional:
        _load_transactional(
            shard, header.producer_id, header.attributes & CONTROL_BIT, listed, found,
            open_transactions)
    else:
        found += listed
    if others.unreadable:
        return f"{others.unreadable} of its {header.record_count} records are not well formed"
    return None


cdef int _load_transactional(
    Shard* shard, int64_t producer_id, int control, list records, list found,
    open_transactions,
) except -1:
    # What a transaction has written counts with its marker, or never; nothing is without a key.
    cdef Text key, value
    cdef int64_t offset
    cdef int status
    if not control:
        if pending := [record for record in records if record.key is not None]:
            open_transactions.add(shard.index, producer_id, pending)
        return 0
    for marker in records:
        waiting = open_transactions.before(shard.index, producer_id, marker.offset)
        open_transactions.end(shard.index, producer_id, marker.offset)
        if marker.key is None or marker.key[2:4] != b"\0\1":
            continue
        for record in waiting:
            key = text_of(record.key)
            value = nullable_text_of(record.value)
            offset = record.offset
            with nogil:
                status = record_load(shard, &key, &value, offset)
            if status == NO_MEMORY:
                raise MemoryError
            if status == FOR_PYTHON:
                found.append(record)
    return 0
