# cython: language_level=3
"""Validation of a produced record batch: header, CRC-32C, and every record walked.

Called by the request path for each batch before the partition's lock is taken, by recovery, and
by the searches for a timestamp. Any thread; no lock, no GIL, no allocation but a codec's window.

The bytes are a client's and hostile: the header's length is compared once with the bytes there are,
records are read through a `kb_stream` that never passes its end, and a record must take exactly the
bytes that it announces. The format of a batch: https://kafka.apache.org/documentation, "Message
Format". The base offset, its length and the leader epoch lie outside the CRC, so assigning offsets
costs no second pass; a changed timestamp or its type does.
"""

from kbroker.core._arena cimport arena_take
from libc.stdint cimport (
    INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t)

from kbroker.core._error_codes cimport (
    CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE,
    NO_ERROR, UNSUPPORTED_COMPRESSION_TYPE)
from kbroker.core._limits cimport UNPACKED_BYTES_MIN, UNPACKED_RATIO_MAX
from kbroker.core._codecs cimport (
    KB_CODEC_GZIP, KB_CODEC_ZSTD, KB_STREAM_NO_CODEC, KB_STREAM_NO_MEMORY, KB_STREAM_OK,
    KB_STREAM_TOO_LONG, kb_stream, kb_stream_close, kb_stream_open, kb_stream_refill)
from kbroker.log.engine._record_stream cimport (
    position, skip, skip_field, skip_headers, take_varint, take_varlong)
from kbroker.log.engine._types cimport NEEDS_PYTHON, VALIDATED, Batch
from kbroker.protocol._cursor cimport (
    get_i16, get_i32, get_i64, kb_get_u32, kb_put_u16, kb_put_u32, kb_put_u64)

cdef extern from "crc32c.h" nogil:
    uint32_t kb_crc32c(uint32_t crc, const uint8_t* data, size_t length)

cdef enum:
    ZSTD_PRODUCE_VERSION = 7      # the first Produce version whose clients know zstd
    NO_PRODUCER_ID = -1
    MAGIC_MAX = 2

    NO_TIMESTAMP = -1
    BAD_RECORDS_MAX = 1024        # sent to the client; a batch of millions is refused in a few KB
    RECORD_BYTES_MIN = 14         # of a batch of any magic, as its length counts them


cdef int batch_unpacks_slowly(const Batch* batch) noexcept nogil:
    cdef int codec = batch.data[AT_ATTRIBUTES + 1] & CODEC_MASK
    return codec == KB_CODEC_ZSTD or codec == KB_CODEC_GZIP


cdef int64_t unpacked_bytes_max(int64_t packed_bytes) noexcept nogil:
    """What a client's records may unpack to: 256 times their size, and 64 MB in any case.

    More is refused as too large. Real text reaches 10; a Java producer's own bound on a request is
    far below either. It holds for produced records alone: the same records may be recompressed, by
    a topic's own codec or by the cleaner, into less than a 256th.
    """
    cdef int64_t bytes_max = packed_bytes * UNPACKED_RATIO_MAX
    return bytes_max if bytes_max > UNPACKED_BYTES_MIN else UNPACKED_BYTES_MIN


cdef void rules_none(Rules* rules) noexcept nogil:
    rules.compacted = 0
    rules.gaps = 0
    rules.log_append_time = 0
    rules.timestamps_refused = 0
    rules.timestamp_min_ms = INT64_MIN
    rules.timestamp_max_ms = INT64_MAX
    rules.unpacked_bytes_max = INT64_MAX
    rules.wanted_timestamp_ms = INT64_MAX
    rules.wanted_delta_min = 0
    rules.arena = NULL


cdef void header_read(const uint8_t* data, Header* header) noexcept nogil:
    header.base_offset = get_i64(data + AT_BASE_OFFSET)
    header.size_bytes = <int64_t>get_i32(data + AT_LENGTH) + LOG_OVERHEAD_BYTES
    header.leader_epoch = get_i32(data + AT_LEADER_EPOCH)
    header.magic = <int8_t>data[AT_MAGIC]
    header.crc = kb_get_u32(data + AT_CRC)
    header.attributes = get_i16(data + AT_ATTRIBUTES)
    header.last_offset_delta = get_i32(data + AT_LAST_OFFSET_DELTA)
    header.base_timestamp_ms = get_i64(data + AT_BASE_TIMESTAMP)
    header.max_timestamp_ms = get_i64(data + AT_MAX_TIMESTAMP)
    header.producer_id = get_i64(data + AT_PRODUCER_ID)
    header.producer_epoch = get_i16(data + AT_PRODUCER_EPOCH)
    header.base_sequence = get_i32(data + AT_BASE_SEQUENCE)
    header.record_count = get_i32(data + AT_RECORD_COUNT)


cdef int header_plausible(const Header* header) noexcept nogil:
    # A compacted log may hold a batch with fewer records than offsets, even with none.
    return (header.magic == 2 and header.size_bytes >= HEADER_BYTES and header.base_offset >= 0
            and header.last_offset_delta >= 0 and header.record_count >= 0
            and header.base_offset <= INT64_MAX - header.last_offset_delta)


cdef uint32_t crc32c(uint32_t crc, const uint8_t* data, int64_t length) noexcept nogil:
    return kb_crc32c(crc, data, <size_t>length)


cdef uint32_t batch_crc(const uint8_t* data, int64_t size_bytes) noexcept nogil:
    return kb_crc32c(0, data + AT_ATTRIBUTES, <size_t>(size_bytes - AT_ATTRIBUTES))


# --- Records --------------------------------------------------------------------------------------

cdef inline int fail(Walk* walk, int16_t error, int32_t record, const char* message) noexcept nogil:
    walk.error = error
    walk.record = record
    walk.message = message
    return -1


cdef void note_bad(const Rules* rules, Walk* walk, int32_t record, int timestamp) noexcept nogil:
    # A record that is well formed and not taken here.
    if walk.bad_count == 0:
        walk.record = record
        if rules.arena != NULL:
            walk.bad = <int32_t*>arena_take(rules.arena, sizeof(int32_t) * BAD_RECORDS_MAX)
    walk.bad_timestamps |= timestamp
    if walk.bad_count < BAD_RECORDS_MAX:
        if walk.bad != NULL:
            walk.bad[walk.bad_count] = 2 * record + timestamp
        walk.bad_count += 1


cdef const char* bad_record_text(int32_t bad_record) noexcept nogil:
    if bad_record & 1:
        return "a timestamp lies outside the topic's window"
    return "a compacted topic takes no record without a key"


cdef int walk_record(
    kb_stream* stream, int32_t index, int64_t base_timestamp_ms, const Rules* rules, Walk* walk
) noexcept nogil:
    cdef int32_t length, offset_delta, key_length, value_length
    cdef int64_t timestamp_delta, timestamp_ms, end
    if take_varint(stream, &length) < 0:
        return fail(walk, INVALID_RECORD, index, "the batch ends before its last record")
    end = position(stream) + length
    if length < 0 or skip(stream, 1) < 0 or take_varlong(stream, &timestamp_delta) < 0:
        return fail(walk, INVALID_RECORD, index, "a record is cut off or not well formed")
    if take_varint(stream, &offset_delta) < 0:
        return fail(walk, INVALID_RECORD, index, "a record is cut off or not well formed")
    if skip_field(stream, end, &key_length) < 0 or skip_field(stream, end, &value_length) < 0:
        return fail(walk, INVALID_RECORD, index, "a key or value does not fit in its record")
    if skip_headers(stream, end) < 0:
        return fail(walk, INVALID_RECORD, index, "a record's headers do not fit in it")
    if position(stream) != end:
        return fail(walk, INVALID_RECORD, index, "a record's length disagrees with its fields")
    if offset_delta != index and (not rules.gaps or offset_delta < index):
        return fail(walk, INVALID_RECORD, index, "offsets inside the batch are not consecutive")
    timestamp_ms = <int64_t>(<uint64_t>base_timestamp_ms + <uint64_t>timestamp_delta)
    if key_length < 0 and rules.compacted:
        note_bad(rules, walk, index, 0)
    elif (timestamp_ms < rules.timestamp_min_ms or timestamp_ms > rules.timestamp_max_ms) and (
            timestamp_ms != NO_TIMESTAMP or rules.timestamps_refused):
        note_bad(rules, walk, index, 1)
    if timestamp_ms > walk.max_timestamp_ms:
        walk.max_timestamp_ms = timestamp_ms
        walk.max_timestamp_delta = offset_delta
    if (timestamp_ms >= rules.wanted_timestamp_ms and walk.found_delta < 0
            and offset_delta >= rules.wanted_delta_min):
        walk.found_delta = offset_delta
        walk.found_timestamp_ms = timestamp_ms
    return 0


cdef int records_walk(
    const uint8_t* records, int64_t length, int codec, int32_t count, int64_t base_timestamp_ms,
    const Rules* rules, Walk* walk
) noexcept nogil:
    cdef kb_stream stream
    cdef int32_t index
    cdef int status
    walk.error = NO_ERROR
    walk.record = -1
    walk.message = NULL
    walk.max_timestamp_ms = -1
    walk.max_timestamp_delta = -1
    walk.found_delta = -1
    walk.found_timestamp_ms = -1
    walk.bad_count = 0
    walk.bad = NULL
    walk.bad_timestamps = 0
    status = kb_stream_open(
        &stream, codec, records, <size_t>length, rules.unpacked_bytes_max)
    if status == KB_STREAM_OK:
        for index in range(count):
            if walk_record(&stream, index, base_timestamp_ms, rules, walk) < 0:
                break
        else:
            if stream.at != stream.end or kb_stream_refill(&stream):
                fail(walk, INVALID_RECORD, -1, "bytes are left after the batch's last record")
    # What the codec says explains the records' trouble, not the other way round.
    if stream.status == KB_STREAM_TOO_LONG:
        fail(walk, MESSAGE_TOO_LARGE, -1, "the compressed records unpack to too many bytes")
    elif stream.status == KB_STREAM_NO_MEMORY:
        fail(walk, KAFKA_STORAGE_ERROR, -1, "no memory to unpack the records")
    elif stream.status != KB_STREAM_OK:
        fail(walk, INVALID_RECORD, -1, "the compressed records cannot be unpacked")
    walk.unpacked_bytes = stream.end_offset if codec else 0
    kb_stream_close(&stream)
    if walk.error == NO_ERROR and walk.bad_count:
        walk.error = INVALID_TIMESTAMP if walk.bad_timestamps else INVALID_RECORD
        walk.message = bad_record_text(walk.bad_timestamps)
    elif walk.error != NO_ERROR:
        walk.bad_count = 0
    return stream.status == KB_STREAM_NO_CODEC


# --- Batches --------------------------------------------------------------------------------------

cdef int refuse(Batch* batch, int16_t error, const char* message) noexcept nogil:
    batch.error = error
    batch.error_message = message
    return VALIDATED


cdef inline int reject(Batch* batch, int16_t error, const char* message) noexcept nogil:
    # A refusal by the log, whose start is sent to the client (log_validate knows it).
    batch.log_start_offset = 0
    return refuse(batch, error, message)


cdef int next_batch(const uint8_t* data, int64_t left, int64_t* size_bytes) noexcept nogil:
    # 1: a whole batch of some magic; 0: none, or a piece of one; -1: damaged.
    cdef int64_t length
    if left < AT_LEADER_EPOCH:
        return 0
    length = get_i32(data + AT_LENGTH)
    if length < RECORD_BYTES_MIN:
        return -1
    if left <= AT_MAGIC:
        return 0
    if data[AT_MAGIC] > MAGIC_MAX:
        return -1
    size_bytes[0] = length + LOG_OVERHEAD_BYTES
    return size_bytes[0] <= left


cdef int batch_outline(Batch* batch) noexcept nogil:
    cdef int64_t size_bytes = 0, next_bytes = 0
    cdef int found = next_batch(batch.data, batch.length_bytes, &size_bytes)
    if found < 0:
        refuse(batch, CORRUPT_MESSAGE, "a record batch has no size or magic that there can be")
        return OUTLINE_DAMAGED
    if found == 0:
        refuse(batch, INVALID_RECORD, "a record batch is missing or cut off")
        return OUTLINE_NORMAL
    if batch.data[AT_MAGIC] != MAGIC_MAX:
        refuse(batch, INVALID_RECORD, "only record batches of magic 2 are taken")
        return OUTLINE_NORMAL
    if size_bytes < batch.length_bytes:
        found = next_batch(
            batch.data + size_bytes, batch.length_bytes - size_bytes, &next_bytes)
        if found > 0:
            refuse(batch, INVALID_RECORD, "a produce request holds one batch per partition")
        elif found < 0:
            refuse(batch, CORRUPT_MESSAGE, "what follows the batch is no piece of another")
        batch.length_bytes = <uint32_t>size_bytes
    if size_bytes > AT_ATTRIBUTES + 1 and batch.data[AT_ATTRIBUTES + 1] & TRANSACTIONAL_BIT:
        return OUTLINE_TRANSACTIONAL
    return OUTLINE_NORMAL


cdef const char* header_trouble(const Header* header) noexcept nogil:
    # What makes a batch invalid whatever its records are; NULL if nothing.
    if header.record_count <= 0 or header.record_count - 1 != header.last_offset_delta:
        return "the record count disagrees with the last offset"
    if header.attributes & CONTROL_BIT:
        return "clients may not write control records"
    if header.producer_id != NO_PRODUCER_ID:
        if header.producer_id < 0 or header.producer_epoch < 0:
            return "the producer id or its epoch is negative"
        if header.base_sequence < 0:
            return "a batch with a producer id needs a sequence number"
    elif header.attributes & TRANSACTIONAL_BIT:
        return "a transactional batch needs a producer id"
    return NULL


cdef int batch_shape(Batch* batch, Header* header, int64_t max_message_bytes) noexcept nogil:
    # The header and the CRC. 0: `header` is filled and good; -1: batch.error says why not.
    cdef const char* trouble
    if batch.length_bytes < HEADER_BYTES:
        if batch.length_bytes > AT_MAGIC and batch.data[AT_MAGIC] != 2:
            refuse(batch, INVALID_RECORD, "only record batches of magic 2 are taken")
        else:
            refuse(batch, INVALID_RECORD, "a record batch is missing or cut off")
        return -1
    header_read(batch.data, header)
    if header.magic != 2:
        refuse(batch, INVALID_RECORD, "only record batches of magic 2 are taken")
        return -1
    if header.size_bytes < HEADER_BYTES:
        refuse(batch, CORRUPT_MESSAGE, "a batch announces fewer bytes than its header has")
        return -1
    if header.size_bytes != batch.length_bytes:
        refuse(batch, INVALID_RECORD, "a produce request holds exactly one batch per partition")
        return -1
    if header.base_offset != 0:
        reject(batch, INVALID_RECORD, "a produced batch must have base offset 0")
        return -1
    if (batch.sent_bytes if batch.sent_bytes else header.size_bytes) > max_message_bytes:
        refuse(batch, MESSAGE_TOO_LARGE, "the batch is larger than max.message.bytes")
        return -1
    if batch_crc(batch.data, header.size_bytes) != header.crc:
        refuse(batch, CORRUPT_MESSAGE, "the batch does not have the CRC that it names")
        return -1
    trouble = header_trouble(header)
    if trouble != NULL:
        reject(batch, INVALID_RECORD, trouble)
        return -1
    return 0


cdef void batch_settle_time(
    Batch* batch, const Header* header, int log_append_time, int64_t now_ms
) noexcept nogil:
    # The broker's time where the topic wants it, else the largest timestamp that the records have.
    batch.attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    if log_append_time:
        batch.attributes |= LOG_APPEND_TIME_BIT
        batch.append_time_ms = now_ms
        batch.max_timestamp_ms = now_ms


cdef void batch_put_time(Batch* batch) noexcept nogil:
    cdef Header header
    header_read(batch.data, &header)
    if (batch.attributes == header.attributes
            and batch.max_timestamp_ms == header.max_timestamp_ms):
        return
    kb_put_u16(batch.data + AT_ATTRIBUTES, <uint32_t>batch.attributes & 0xFFFF)
    kb_put_u64(batch.data + AT_MAX_TIMESTAMP, <uint64_t>batch.max_timestamp_ms)
    kb_put_u32(batch.data + AT_CRC, batch_crc(batch.data, batch.length_bytes))


cdef inline int refuses_append_time(const Header* header, const Rules* rules) noexcept nogil:
    # A client that sets the bit says that a broker's clock is in the header. As in Apache Kafka
    # this is then the time of every record, and is held to the window where a client may choose it.
    return (rules.log_append_time or header.max_timestamp_ms == NO_TIMESTAMP
            or header.max_timestamp_ms < rules.timestamp_min_ms
            or header.max_timestamp_ms > rules.timestamp_max_ms)


cdef int batch_walk(Batch* batch, const Header* header, const Rules* rules) noexcept nogil:
    # Its unpacked bytes are taken from those of its request. 1: the codec's library is missing.
    cdef Rules bounded = rules[0]
    cdef Walk walk
    if header.attributes & LOG_APPEND_TIME_BIT and refuses_append_time(header, rules):
        bounded.timestamps_refused = 1
        bounded.timestamp_min_ms = INT64_MAX
        bounded.timestamp_max_ms = INT64_MIN
    bounded.unpacked_bytes_max = unpacked_bytes_max(header.size_bytes - HEADER_BYTES)
    if batch.unpacked_left != NULL:
        bounded.unpacked_bytes_max = min(
            bounded.unpacked_bytes_max, batch.unpacked_left[0])
    if records_walk(
            batch.data + HEADER_BYTES, header.size_bytes - HEADER_BYTES, batch.codec,
            header.record_count, header.base_timestamp_ms, &bounded, &walk):
        return 1
    if batch.unpacked_left != NULL:
        batch.unpacked_left[0] -= walk.unpacked_bytes
    batch.max_timestamp_ms = walk.max_timestamp_ms
    if walk.error:
        batch.error_record = walk.record
        batch.bad_records = walk.bad
        batch.bad_record_count = walk.bad_count if walk.bad != NULL else 0
        reject(batch, walk.error, walk.message)
    return 0


cdef int batch_validate(
    Batch* batch, const Rules* rules, int64_t max_message_bytes, int log_append_time, int64_t now_ms
) noexcept nogil:
    cdef Header header
    batch.base_offset = -1
    batch.last_offset = -1
    batch.append_time_ms = -1
    batch.log_start_offset = -1
    batch.error_record = -1
    batch.bad_record_count = 0
    if batch.error != NO_ERROR or batch_shape(batch, &header, max_message_bytes) < 0:
        return VALIDATED
    batch.attributes = header.attributes
    batch.codec = header.attributes & CODEC_MASK
    batch.record_count = header.record_count
    batch.producer_id = header.producer_id
    batch.producer_epoch = header.producer_epoch
    batch.base_sequence = header.base_sequence
    batch.max_timestamp_ms = header.max_timestamp_ms
    if batch.codec > KB_CODEC_ZSTD:
        return reject(batch, UNSUPPORTED_COMPRESSION_TYPE, "there is no such compression type")
    if (batch.codec == KB_CODEC_ZSTD and batch.api_version < ZSTD_PRODUCE_VERSION
            and not (batch.repacked and batch.prechecked)):   # the topic's codec is for all
        return refuse(batch, UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if not (batch.prechecked and batch.codec):
        if batch_walk(batch, &header, rules):
            return NEEDS_PYTHON
        if batch.error != NO_ERROR:
            return VALIDATED
    batch_settle_time(batch, &header, log_append_time, now_ms)
    return VALIDATED
