# cython: language_level=3
"""Records of a log into a shard, at a load.

A record that the machine's memory in C knows changes the shard (`ShardKind.apply_locked`); every
other one, and one that does not read, is listed for Python. A record that is not well formed is
left out and counted, and so are those after it where its length is wrong as well. `load_records`
takes the shard's lock for a batch at a time, so that a request to a loading shard is not kept
waiting.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc

from kbroker.coordinator.runtime._batches cimport RecordView, Text
from kbroker.coordinator.runtime._shards cimport record_apply_locked, shard_lock, shard_unlock
from kbroker.coordinator.runtime._structs cimport FOR_PYTHON, NO_MEMORY, Shard
from kbroker.core._codecs cimport (
    KB_CODEC_NONE,
    kb_stream,
    kb_stream_close,
    kb_stream_open,
)
from kbroker.log.engine._record_stream cimport (
    position,
    skip,
    skip_headers,
    take_length,
    take_varint,
    take_varlong,
)

cdef enum:
    RECORD_UNREADABLE = 1
    REST_UNREADABLE = 2


cdef inline int _take_bytes(kb_stream* body, int64_t end, Text* text) noexcept nogil:
    text.at = NULL
    if take_length(body, end, &text.length) < 0:
        return -1
    if text.length < 0:
        return 0
    text.at = body.at
    return skip(body, text.length)


cdef int _next_record(
    kb_stream* records, int64_t base_offset, int64_t base_timestamp_ms, RecordView* record,
) noexcept nogil:
    # Read as the validator reads it. RECORD_UNREADABLE: what follows it can be read;
    # REST_UNREADABLE: where the next one begins is not known.
    cdef int64_t timestamp_delta, end
    cdef int32_t length, offset_delta
    cdef kb_stream body
    if take_varint(records, &length) < 0 or length < 0 or length > records.end - records.at:
        return REST_UNREADABLE
    kb_stream_open(&body, KB_CODEC_NONE, records.at, <size_t>length, length)
    records.at += length
    end = length
    if (skip(&body, 1) < 0 or take_varlong(&body, &timestamp_delta) < 0
            or take_varint(&body, &offset_delta) < 0
            or _take_bytes(&body, end, &record.key) < 0
            or _take_bytes(&body, end, &record.value) < 0
            or skip_headers(&body, end) < 0 or position(&body) != end):
        return RECORD_UNREADABLE
    record.timestamp_ms = <int64_t>(<uint64_t>base_timestamp_ms + <uint64_t>timestamp_delta)
    record.offset = <int64_t>(<uint64_t>base_offset + <uint64_t>offset_delta)
    return 0


cdef int _list(Others* others, const RecordView* record) noexcept nogil:
    cdef int64_t capacity
    cdef RecordView* grown
    if others.count == others.capacity:
        capacity = 2 * others.capacity + 16
        grown = <RecordView*>realloc(others.items, sizeof(RecordView) * <size_t>capacity)
        if grown == NULL:
            return NO_MEMORY
        others.items = grown
        others.capacity = capacity
    others.items[others.count] = record[0]
    others.count += 1
    return 0


cdef int _load_locked(
    Shard* shard, kb_stream* stream, int32_t count, int64_t base_offset,
    int64_t base_timestamp_ms, int apply, Others* others, Others* tombstones,
) noexcept nogil:
    cdef RecordView record
    cdef int status
    cdef int32_t number = 0
    for number in range(count):
        status = _next_record(stream, base_offset, base_timestamp_ms, &record)
        if status == RECORD_UNREADABLE:
            others.unreadable += 1
            continue
        if status == REST_UNREADABLE:
            others.unreadable += count - number
            break
        if tombstones != NULL and record.value.length < 0 and _list(tombstones, &record) != 0:
            return NO_MEMORY
        status = FOR_PYTHON
        if apply:
            status = record_apply_locked(shard, &record.key, &record.value, record.offset)
        if status == FOR_PYTHON:
            status = _list(others, &record)
        if status == NO_MEMORY:
            return NO_MEMORY
    else:
        others.unreadable += stream.at != stream.end      # what follows them counts as one
    return 0


cdef int record_load(
    Shard* shard, const Text* key, const Text* value, int64_t log_offset,
) noexcept nogil:
    cdef int status
    shard_lock(shard)
    status = record_apply_locked(shard, key, value, log_offset)
    shard_unlock(shard)
    return status


cdef int load_records(
    Shard* shard, uint8_t* records, int64_t length, int32_t count, int64_t base_offset,
    int64_t base_timestamp_ms, int apply, Others* others, Others* tombstones,
) noexcept nogil:
    cdef kb_stream stream
    cdef int status
    kb_stream_open(&stream, KB_CODEC_NONE, records, <size_t>length, length)
    shard_lock(shard)
    status = _load_locked(
        shard, &stream, count, base_offset, base_timestamp_ms, apply, others, tombstones)
    shard_unlock(shard)
    kb_stream_close(&stream)
    return status
