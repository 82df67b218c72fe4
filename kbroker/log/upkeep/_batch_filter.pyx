# cython: language_level=3
"""The records of a batch that the cleaner keeps, and the batch that is made of them.

A record goes if a later one has its key; if it has no key; and if it is a tombstone whose batch has
passed its delete horizon: that is given to a batch when its tombstones are cleaned for the first
time, as the base from which its timestamps count (KIP-534). Records after the last offset that was
mapped stay. Records that stay are copied; offsets and timestamps are what they were.
https://kafka.apache.org/documentation/#compaction

Records are read twice: to see which stay, and to write them, in pieces. However much a batch
unpacks to, only a window of it is in memory.

The bytes are a disk's: records are read through a `kb_stream` that never passes its end, and a
record must take exactly what it announces. No GIL, no lock.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kbroker.core._codecs cimport (
    KB_STREAM_NO_CODEC, KB_STREAM_NO_MEMORY, KB_STREAM_OK, kb_stream, kb_stream_close,
    kb_stream_open, kb_stream_refill)
from kbroker.log.engine._record_stream cimport (
    position, skip, skip_field, skip_headers, take_bytes, take_length, take_varint, take_varlong)
from kbroker.log.engine._records cimport (
    AT_ATTRIBUTES, AT_BASE_TIMESTAMP, AT_CRC, AT_LENGTH, AT_MAX_TIMESTAMP, AT_RECORD_COUNT,
    CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME_BIT, LOG_OVERHEAD_BYTES, batch_crc)
from kbroker.log.upkeep._batch_source cimport (
    STEP_DAMAGED, STEP_DONE, STEP_FAILED, STEP_FULL, STEP_MORE, STEP_PACK, STEP_UNPACK)
from kbroker.log.upkeep._buffer cimport buffer_close, buffer_reserve
from kbroker.log.upkeep._key_map cimport KEY_MAP_FULL, key_map_close, key_map_get, key_map_put
from kbroker.protocol._cursor cimport kb_put_u16, kb_put_u32, kb_put_u64

cdef enum:
    NO_TIMESTAMP = -1
    VARINT_BYTES_MAX = 10
    NUMBERS_BYTES_MAX = 31        # attributes and three of them
    VALUE_LENGTH_BYTES_MAX = 5    # a varint of 32 bits


cdef struct Writing:
    # The records of a batch, from its beginning again, of which those that stay are written.
    kb_stream stream
    int is_open
    int codec
    int32_t seen                  # of the batch's records
    int64_t rest                  # bytes of the last of them that are to be copied
    int64_t base_timestamp_ms


cdef struct Front:
    # A record up to the end of its key, which is good until the stream is read on.
    uint8_t attributes
    int32_t offset_delta
    int64_t offset
    int64_t timestamp_ms
    int32_t key_length            # below 0: null
    const uint8_t* key
    int64_t end                   # of the record, in the stream


cdef void filter_close(BatchFilter* filter) noexcept nogil:
    if filter.writing != NULL:
        end_writing(<Writing*>filter.writing)
    free(filter.writing)
    key_map_close(&filter.map)
    buffer_close(&filter.key)
    buffer_close(&filter.out)


cdef inline Step not_well_formed(Trouble* trouble) noexcept nogil:
    trouble.damage = "a record is not well formed"
    return STEP_DAMAGED


cdef inline Step no_memory(Trouble* trouble) noexcept nogil:
    trouble.status = ENOMEM
    return STEP_FAILED


cdef Step stream_failed(const kb_stream* stream, int codec, Trouble* trouble) noexcept nogil:
    if stream.status == KB_STREAM_NO_MEMORY:
        return no_memory(trouble)
    if stream.status == KB_STREAM_NO_CODEC:
        return STEP_UNPACK
    if codec:
        trouble.damage = "its records cannot be unpacked"
        return STEP_DAMAGED
    return not_well_formed(trouble)


cdef Step end_of_records(kb_stream* stream, Trouble* trouble) noexcept nogil:
    if stream.at != stream.end or kb_stream_refill(stream):
        return not_well_formed(trouble)
    return STEP_DONE


cdef Step read_front(
    kb_stream* stream, const Header* header, Buffer* key, Front* front, Trouble* trouble
) noexcept nogil:
    cdef int32_t length
    cdef int64_t delta
    if take_varint(stream, &length) < 0:
        return not_well_formed(trouble)
    front.end = position(stream) + length
    if (length < 0 or take_bytes(stream, &front.attributes, 1) < 0
            or take_varlong(stream, &delta) < 0
            or take_varint(stream, &front.offset_delta) < 0
            or take_varint(stream, &front.key_length) < 0
            or front.key_length < -1
            # A value's length comes after it.
            or max(front.key_length, 0) >= front.end - position(stream)
            or front.offset_delta < 0 or front.offset_delta > header.last_offset_delta):
        return not_well_formed(trouble)
    front.offset = header.base_offset + front.offset_delta
    front.timestamp_ms = <int64_t>(<uint64_t>header.base_timestamp_ms + <uint64_t>delta)
    front.key = stream.at
    if front.key_length <= 0:
        return STEP_DONE
    if front.key_length <= stream.end - stream.at:
        stream.at += front.key_length
        return STEP_DONE
    key.size = 0
    if buffer_reserve(key, front.key_length) != 0:
        return no_memory(trouble)
    front.key = key.data
    if take_bytes(stream, key.data, front.key_length) < 0:
        return not_well_formed(trouble)
    return STEP_DONE


# --- The map --------------------------------------------------------------------------------------

cdef Step map_record(
    BatchFilter* filter, const Header* header, kb_stream* stream, Trouble* trouble
) noexcept nogil:
    cdef Front front
    cdef Step step = read_front(stream, header, &filter.key, &front, trouble)
    if step != STEP_DONE:
        return step
    if front.key_length >= 0 and front.offset >= filter.first_dirty and key_map_put(
            &filter.map, front.key, front.key_length, front.offset) == KEY_MAP_FULL:
        filter.mapped_end = max(filter.mapped_end, front.offset)
        return STEP_FULL
    if skip(stream, front.end - position(stream)) < 0:
        return not_well_formed(trouble)
    return STEP_DONE


cdef Step filter_map(
    BatchFilter* filter, const Header* header, const uint8_t* records, int64_t length, int codec,
    Trouble* trouble
) noexcept nogil:
    cdef kb_stream stream
    cdef Step step = STEP_DONE
    cdef int32_t _at
    kb_stream_open(&stream, codec, records, <size_t>length, INT64_MAX)
    if stream.status == KB_STREAM_OK:
        for _at in range(header.record_count):
            step = map_record(filter, header, &stream, trouble)
            if step != STEP_DONE:
                break
        else:
            step = end_of_records(&stream, trouble)
    if stream.status != KB_STREAM_OK:
        step = stream_failed(&stream, codec, trouble)
    kb_stream_close(&stream)
    if step == STEP_DONE:
        filter.mapped_end = max(
            filter.mapped_end, header.base_offset + header.last_offset_delta + 1)
    return step


# --- What stays -----------------------------------------------------------------------------------

cdef inline int is_kept(const BatchFilter* filter, const Front* front) noexcept nogil:
    if front.offset >= filter.mapped_end:
        return 1
    if front.key_length < 0:
        return 0
    return key_map_get(&filter.map, front.key, front.key_length) <= front.offset


cdef inline int put_varlong(uint8_t* to, int64_t value) noexcept nogil:
    # Zigzag; answers how many bytes.
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 0
    while raw >= 0x80:
        to[size] = <uint8_t>(raw & 0x7F | 0x80)
        raw >>= 7
        size += 1
    to[size] = <uint8_t>raw
    return size + 1


cdef int put_front(
    Buffer* out, const Front* front, int64_t base_timestamp_ms, int64_t rest
) noexcept nogil:
    # A record up to its key, with `rest` bytes to come; its time counts from the base. 0 or
    # ENOMEM: there is room for the length of its value, too.
    cdef uint8_t[NUMBERS_BYTES_MAX] numbers
    cdef int64_t key_bytes = max(front.key_length, 0)
    cdef int size = 1
    numbers[0] = front.attributes
    size += put_varlong(
        numbers + size, <int64_t>(<uint64_t>front.timestamp_ms - <uint64_t>base_timestamp_ms))
    size += put_varlong(numbers + size, front.offset_delta)
    size += put_varlong(numbers + size, front.key_length)
    if buffer_reserve(
            out, VARINT_BYTES_MAX + size + key_bytes + VALUE_LENGTH_BYTES_MAX) != 0:
        return ENOMEM
    out.size += put_varlong(out.data + out.size, size + key_bytes + rest)
    memcpy(out.data + out.size, numbers, <size_t>size)
    out.size += size
    if key_bytes:
        memcpy(out.data + out.size, front.key, <size_t>key_bytes)
    out.size += key_bytes
    return 0


cdef inline void put_value_length(uint8_t* to, int32_t value, int64_t size) noexcept nogil:
    # In as many bytes as it was read from: the record is as long as `put_front` has said.
    cdef uint32_t raw = (<uint32_t>value << 1) ^ <uint32_t>(value >> 31)
    while size > 1:
        to[0] = <uint8_t>(raw & 0x7F | 0x80)
        to += 1
        raw >>= 7
        size -= 1
    to[0] = <uint8_t>raw


cdef inline int tombstone_goes(
    const BatchFilter* filter, const Front* front, int horizon_is_over
) noexcept nogil:
    return horizon_is_over and front.offset < filter.mapped_end


cdef Step look_at_record(
    BatchFilter* filter, const Header* header, kb_stream* stream, int horizon_is_over,
    Trouble* trouble
) noexcept nogil:
    # One that stays is as the validator takes it; of others nothing more than the key is read.
    cdef Passed* passed = &filter.passed
    cdef int32_t value_length
    cdef Front front
    cdef Step step = read_front(stream, header, &filter.key, &front, trouble)
    if step != STEP_DONE:
        return step
    passed.seen += 1
    if is_kept(filter, &front):
        if (skip_field(stream, front.end, &value_length) < 0
                or skip_headers(stream, front.end) < 0 or position(stream) != front.end):
            return not_well_formed(trouble)
        if value_length >= 0 or not tombstone_goes(filter, &front, horizon_is_over):
            passed.kept += 1
            passed.tombstones += value_length < 0
            passed.max_timestamp_ms = max(passed.max_timestamp_ms, front.timestamp_ms)
    if skip(stream, front.end - position(stream)) < 0:
        return not_well_formed(trouble)
    return STEP_DONE


cdef Step look_at_records(
    BatchFilter* filter, const Header* header, const uint8_t* records, int64_t length, int codec,
    Trouble* trouble
) noexcept nogil:
    # How many stay, and which times they have.
    cdef kb_stream stream
    cdef Step step = STEP_DONE
    cdef int32_t _at
    cdef int horizon_is_over = (
        header.attributes & DELETE_HORIZON_BIT and header.base_timestamp_ms <= filter.now_ms)
    memset(&filter.passed, 0, sizeof(Passed))
    filter.passed.max_timestamp_ms = NO_TIMESTAMP
    filter.horizon_is_over = horizon_is_over
    kb_stream_open(&stream, codec, records, <size_t>length, INT64_MAX)
    if stream.status == KB_STREAM_OK:
        for _at in range(header.record_count):
            step = look_at_record(filter, header, &stream, horizon_is_over, trouble)
            if step != STEP_DONE:
                break
        else:
            step = end_of_records(&stream, trouble)
    if stream.status != KB_STREAM_OK:
        step = stream_failed(&stream, codec, trouble)
    kb_stream_close(&stream)
    return step


# --- What stays is written, window by window ------------------------------------------------------

cdef void end_writing(Writing* writing) noexcept nogil:
    if writing.is_open:
        kb_stream_close(&writing.stream)
    writing.is_open = 0


cdef int begin_writing(
    BatchFilter* filter, const uint8_t* records, int64_t length, int codec,
    int64_t base_timestamp_ms
) noexcept nogil:
    # 0 or ENOMEM.
    cdef Writing* writing
    if filter.writing == NULL:
        filter.writing = calloc(1, sizeof(Writing))
        if filter.writing == NULL:
            return ENOMEM
    writing = <Writing*>filter.writing
    end_writing(writing)
    kb_stream_open(
        &writing.stream, codec, records, <size_t>length, INT64_MAX)
    writing.is_open = 1
    writing.codec = codec
    writing.seen = 0
    writing.rest = 0
    writing.base_timestamp_ms = base_timestamp_ms
    return 0


cdef Step write_front(
    BatchFilter* filter, const Header* header, Trouble* trouble
) noexcept nogil:
    # Of the next record what comes before its value, if it stays; `rest` is to follow.
    cdef Writing* writing = <Writing*>filter.writing
    cdef kb_stream* stream = &writing.stream
    cdef int64_t before = filter.out.size
    cdef int64_t begin, size
    cdef int32_t value_length
    cdef Front front
    cdef Step step = read_front(stream, header, &filter.key, &front, trouble)
    if step != STEP_DONE:
        return step
    writing.seen += 1
    if is_kept(filter, &front):
        if put_front(
                &filter.out, &front, writing.base_timestamp_ms, front.end - position(stream)) != 0:
            return no_memory(trouble)
        begin = position(stream)
        if take_length(stream, front.end, &value_length) < 0:
            return not_well_formed(trouble)
        if value_length >= 0 or not tombstone_goes(filter, &front, filter.horizon_is_over):
            size = position(stream) - begin
            put_value_length(filter.out.data + filter.out.size, value_length, size)
            filter.out.size += size
            writing.rest = front.end - position(stream)
            return STEP_DONE
        filter.out.size = before
    return STEP_DONE if skip(
        stream, front.end - position(stream)) == 0 else not_well_formed(trouble)


cdef Step write_rest(BatchFilter* filter, int64_t room, Trouble* trouble) noexcept nogil:
    # Of the last record so many bytes at most.
    cdef Writing* writing = <Writing*>filter.writing
    cdef int64_t length = min(writing.rest, room)
    if buffer_reserve(&filter.out, length) != 0:
        return no_memory(trouble)
    if take_bytes(&writing.stream, filter.out.data + filter.out.size, length) < 0:
        return not_well_formed(trouble)
    filter.out.size += length
    writing.rest -= length
    return STEP_DONE


cdef Step filter_write(
    BatchFilter* filter, const Header* header, int64_t out_bytes_max, Trouble* trouble
) noexcept nogil:
    cdef Writing* writing = <Writing*>filter.writing
    cdef Step step = STEP_DONE
    while step == STEP_DONE and (writing.rest or writing.seen < header.record_count):
        if filter.out.size >= out_bytes_max:
            return STEP_MORE
        if writing.rest:
            step = write_rest(filter, out_bytes_max - filter.out.size, trouble)
        else:
            step = write_front(filter, header, trouble)
    if step == STEP_DONE:
        step = end_of_records(&writing.stream, trouble)
    if writing.stream.status != KB_STREAM_OK:
        step = stream_failed(&writing.stream, writing.codec, trouble)
    end_writing(writing)
    return step


cdef int put_header(
    BatchFilter* filter, const Header* header, const uint8_t* batch, int attributes,
    int64_t base_timestamp_ms
) noexcept nogil:
    # Into `out`, of records that are not packed; its length and CRC are not there yet. 0 or ENOMEM.
    cdef uint8_t* data
    cdef int64_t max_timestamp_ms = filter.passed.max_timestamp_ms
    if attributes & LOG_APPEND_TIME_BIT or filter.passed.kept == 0:
        max_timestamp_ms = header.max_timestamp_ms
    filter.out.size = 0
    if buffer_reserve(&filter.out, HEADER_BYTES) != 0:
        return ENOMEM
    filter.out.size = HEADER_BYTES
    data = filter.out.data
    memcpy(data, batch, HEADER_BYTES)
    kb_put_u16(data + AT_ATTRIBUTES, <uint16_t>(attributes & ~CODEC_MASK))
    kb_put_u64(data + AT_BASE_TIMESTAMP, <uint64_t>base_timestamp_ms)
    kb_put_u64(data + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp_ms)
    kb_put_u32(data + AT_RECORD_COUNT, <uint32_t>filter.passed.kept)
    return 0


cdef void seal_header(BatchFilter* filter) noexcept nogil:
    # All of the batch is in `out`.
    cdef uint8_t* data = filter.out.data
    kb_put_u32(data + AT_LENGTH, <uint32_t>(filter.out.size - LOG_OVERHEAD_BYTES))
    kb_put_u32(data + AT_CRC, batch_crc(data, filter.out.size))


cdef inline int64_t horizon_ms(const BatchFilter* filter) noexcept nogil:
    return filter.now_ms + min(filter.delete_retention_ms, INT64_MAX - filter.now_ms)


cdef Step filter_batch(
    BatchFilter* filter, const Header* header, const uint8_t* batch, const uint8_t* records,
    int64_t length, int codec, Trouble* trouble
) noexcept nogil:
    cdef int64_t end = header.base_offset + header.last_offset_delta + 1
    cdef int64_t base_ms = header.base_timestamp_ms
    cdef int attributes = header.attributes
    cdef Step step = look_at_records(filter, header, records, length, codec, trouble)
    filter.out.size = 0
    if step != STEP_DONE:
        return step
    if (filter.passed.tombstones and end <= filter.mapped_end
            and not attributes & DELETE_HORIZON_BIT
            and filter_has_room(filter, filter.passed.kept)):
        base_ms = horizon_ms(filter)
        attributes |= DELETE_HORIZON_BIT
    if filter.passed.kept == 0 or (
            filter.passed.kept == filter.passed.seen and attributes == header.attributes):
        return STEP_DONE
    if (put_header(filter, header, batch, attributes, base_ms) != 0
            or begin_writing(filter, records, length, codec, base_ms) != 0):
        return no_memory(trouble)
    if header.attributes & CODEC_MASK:
        return STEP_PACK
    step = filter_write(filter, header, INT64_MAX, trouble)
    if step == STEP_DONE:
        seal_header(filter)
    return step


cdef Step filter_give_horizon(
    BatchFilter* filter, const Header* header, const uint8_t* batch, const uint8_t* records,
    int64_t length, Trouble* trouble
) noexcept nogil:
    cdef int64_t mapped_end = filter.mapped_end, base_ms = horizon_ms(filter)
    cdef Step step
    filter.mapped_end = 0         # no record has a later one with its key
    step = look_at_records(filter, header, records, length, 0, trouble)
    if step == STEP_DONE and (
            put_header(filter, header, batch, header.attributes | DELETE_HORIZON_BIT, base_ms) != 0
            or begin_writing(filter, records, length, 0, base_ms) != 0):
        step = no_memory(trouble)
    if step == STEP_DONE:
        step = filter_write(filter, header, INT64_MAX, trouble)
    if step == STEP_DONE:
        seal_header(filter)
    filter.mapped_end = mapped_end
    return step


cdef int filter_make_empty(
    BatchFilter* filter, const Header* header, const uint8_t* batch
) noexcept nogil:
    filter.passed.kept = 0
    if put_header(
            filter, header, batch, header.attributes & ~DELETE_HORIZON_BIT, NO_TIMESTAMP) != 0:
        return ENOMEM
    seal_header(filter)
    return 0
