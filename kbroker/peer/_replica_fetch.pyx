# cython: language_level=3
"""The bytes of a follower's Fetch and of its answer, as `replica_fetch.py` describes them.

Compiled, because every round of a follower has one of each, and a call of Python for each field
took as long as the append. An answer is walked partition by partition: first to its end, since a
malformed one changes nothing, then by its user (`replica/_taking.pyx`). The Cursor checks sizes and
counts.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import error_code
from kbroker.peer.replica_fetch import WITHOUT_SESSION, Asked, FetchAnswer, Fetched
from kbroker.protocol.wire import ProtocolError
from kbroker.core._limits cimport ARRAY_ITEMS_MAX
from kbroker.protocol._cursor cimport (
    Cursor, kb_put_u32, kb_put_u64, skip_tags, take, take_bytes, take_count, take_i16, take_i32,
    take_i64, take_tag_count, take_uvarint)
from kbroker.protocol._wire cimport Reader, Writer, writer_of

cdef enum:
    ID_BYTES = 16
    REPLICA_STATE_TAG = 1
    DIVERGING_EPOCH_TAG = 0

    BOUNDS_BYTES = 4 + 4 + 4 + 1 + 4 + 4         # of a request, up to its topics
    ASKED_BYTES = 4 + 4 + 8 + 4 + 8 + 4 + 1      # one partition, with its tags
    STATE_BYTES = 4 + 8 + 1

    TOPIC_BYTES_MIN = ID_BYTES + 1 + 1
    PART_BYTES_MIN = 4 + 2 + 3 * 8 + 1 + 4 + 1 + 1

cdef object _NO_ERROR = ErrorCode.NONE


# --- the request ----------------------------------------------------------------------------------

cdef int _put_asked(Writer writer, object asked, int32_t bytes_max) except -1:
    # The fields of `Asked` in their order, after the topic's id.
    cdef tuple fields
    cdef uint8_t* at
    cdef int32_t partition, leader_epoch, last_epoch
    cdef int64_t offset, log_start
    if not isinstance(asked, Asked):
        raise TypeError(f"{type(asked)} is no partition of a fetch")
    fields = <tuple>asked         # of a subclass of tuple, which Cython would not convert
    partition, leader_epoch, last_epoch = fields[1], fields[2], fields[4]
    offset, log_start = fields[3], fields[5]
    at = writer._grow(ASKED_BYTES)
    kb_put_u32(at, <uint32_t>partition)
    kb_put_u32(at + 4, <uint32_t>leader_epoch)
    kb_put_u64(at + 8, <uint64_t>offset)
    kb_put_u32(at + 16, <uint32_t>last_epoch)
    kb_put_u64(at + 20, <uint64_t>log_start)
    kb_put_u32(at + 28, <uint32_t>bytes_max)
    at[32] = 0                    # no tagged fields
    return 0


cdef int _put_no_tags(Writer writer) except -1:
    writer._grow(1)[0] = 0
    return 0


cdef dict _by_topic(tuples):
    # Of tuples that begin with the topic's id, in the order of first appearance. By its number and
    # then its bytes: the hash of a UUID is slow.
    cdef dict found = {}
    for each in tuples:
        found.setdefault((<tuple>each)[0].int.to_bytes(ID_BYTES, "big"), []).append(each)
    return found


cdef int _put_topic(Writer writer, bytes topic_id, Py_ssize_t count) except -1:
    writer._put(topic_id)
    writer._put_size(count)
    return 0


cdef int _put_begin(
    Writer writer, const FetchBounds* bounds, int32_t session_id, int32_t epoch
) except -1:
    cdef uint8_t* at = writer._grow(BOUNDS_BYTES)
    kb_put_u32(at, <uint32_t>bounds.max_wait_ms)
    kb_put_u32(at + 4, <uint32_t>bounds.min_bytes)
    kb_put_u32(at + 8, <uint32_t>bounds.max_bytes)
    at[12] = 0                    # isolation level: a follower reads up to the log's end
    kb_put_u32(at + 13, <uint32_t>session_id)
    kb_put_u32(at + 17, <uint32_t>epoch)
    return 0


cdef int _put_asked_by_topic(Writer writer, dict topics, int32_t bytes_max) except -1:
    writer._put_size(len(topics))
    for topic_id, partitions in topics.items():
        _put_topic(writer, topic_id, len(<list>partitions))
        for each in <list>partitions:
            _put_asked(writer, each, bytes_max)
        _put_no_tags(writer)
    return 0


cdef int _put_end(Writer writer, int32_t replica_id, int64_t broker_epoch) except -1:
    cdef uint8_t* at
    writer._put_size(0)           # rack
    at = writer._grow(3 + STATE_BYTES)
    at[0] = 1                     # tagged field
    at[1] = REPLICA_STATE_TAG
    at[2] = STATE_BYTES
    kb_put_u32(at + 3, <uint32_t>replica_id)
    kb_put_u64(at + 7, <uint64_t>broker_epoch)
    at[2 + STATE_BYTES] = 0       # no tagged fields
    return 0


cdef FetchBounds bounds_of(limits) except *:
    cdef FetchBounds bounds
    bounds.max_wait_ms, bounds.min_bytes, bounds.max_bytes, bounds.partition_max_bytes = limits
    return bounds


cdef bytes encode_changed(
    int32_t replica_id, int64_t broker_epoch, const FetchBounds* bounds, int32_t session_id,
    int32_t epoch, dict changed
):
    cdef Writer writer = writer_of(True)
    cdef dict topics = {}
    for key, asked in changed.items():
        topic_id = PyBytes_FromStringAndSize(PyBytes_AsString(key), ID_BYTES)
        partitions = topics.get(topic_id)
        if partitions is None:
            topics[topic_id] = [asked]
        else:
            (<list>partitions).append(asked)
    _put_begin(writer, bounds, session_id, epoch)
    _put_asked_by_topic(writer, topics, bounds.partition_max_bytes)
    writer._put_size(0)           # forgotten
    _put_end(writer, replica_id, broker_epoch)
    return writer.getvalue()


def encode_fetch(
    int32_t replica_id, int64_t broker_epoch, asked, limits, metadata=WITHOUT_SESSION, forgotten=(),
):
    cdef Writer writer = writer_of(True)
    cdef FetchBounds bounds = bounds_of(limits)
    cdef int32_t index
    session_id, epoch = metadata
    _put_begin(writer, &bounds, session_id, epoch)
    _put_asked_by_topic(writer, _by_topic(asked), bounds.partition_max_bytes)
    topics = _by_topic(forgotten)
    writer._put_size(len(topics))
    for topic_id, partitions in topics.items():
        _put_topic(writer, topic_id, len(partitions))
        for each in partitions:
            index = (<tuple>each)[1]
            kb_put_u32(writer._grow(4), <uint32_t>index)
        _put_no_tags(writer)
    _put_end(writer, replica_id, broker_epoch)
    return writer.getvalue()


# --- the response ---------------------------------------------------------------------------------

cdef int32_t begin_parts(Reader reader, FetchedParts* out) except? -1:
    cdef Cursor* cursor = &out.cursor
    cdef int16_t code
    cdef int32_t session_id
    cursor.at = <uint8_t*>reader._begin + reader._position
    cursor.left = <size_t>(reader._end - reader._position)
    cursor.failed = 0
    take_i32(cursor)              # throttle time
    code = take_i16(cursor)
    session_id = take_i32(cursor)
    if not cursor.failed and code != 0:
        raise KafkaError(error_code(code), "the leader refused the fetch")
    out.topic_id = NULL
    out.items_left = ARRAY_ITEMS_MAX
    out.parts_left = 0
    out.topics_left = _count(out, TOPIC_BYTES_MIN)
    if cursor.failed:
        raise malformed()
    return session_id


cdef object malformed():
    return ProtocolError("the answer to a fetch is malformed")


cdef int32_t _count(FetchedParts* parts, size_t bytes_min) noexcept nogil:
    cdef int32_t count = take_count(&parts.cursor, 1, bytes_min)
    parts.items_left -= count
    if parts.items_left < 0:
        parts.cursor.failed = 1
    return count


cdef int next_part(FetchedParts* parts, FetchedPart* out) noexcept nogil:
    cdef Cursor* cursor = &parts.cursor
    while parts.parts_left == 0:
        if parts.topic_id != NULL:
            skip_tags(cursor, 1)
            parts.topic_id = NULL
        if cursor.failed:
            return -1
        if parts.topics_left == 0:
            skip_tags(cursor, 1)
            return -1 if cursor.failed else 0
        parts.topics_left -= 1
        parts.topic_id = take(cursor, ID_BYTES)
        parts.parts_left = _count(parts, PART_BYTES_MIN)
        if cursor.failed:
            return -1
    parts.parts_left -= 1
    out.topic_id = parts.topic_id
    _take_part(cursor, out)
    return -1 if cursor.failed else 1


cdef void _take_part(Cursor* cursor, FetchedPart* out) noexcept nogil:
    cdef int64_t count
    out.partition = take_i32(cursor)
    out.error = take_i16(cursor)
    out.high_watermark = take_i64(cursor)
    take_i64(cursor)              # last stable offset: a follower has its own
    out.log_start_offset = take_i64(cursor)
    count = <int64_t>take_uvarint(cursor) - 1
    while count > 0 and not cursor.failed:
        count -= 1
        take(cursor, 2 * 8)       # an aborted transaction: for consumers
        skip_tags(cursor, 1)
    take_i32(cursor)              # preferred read replica: for consumers
    out.records = take_bytes(cursor, 1, &out.records_bytes)
    _take_tags(cursor, out)


cdef void _take_tags(Cursor* cursor, FetchedPart* out) noexcept nogil:
    # The epoch and its end in the tagged fields of a partition; -1: not there, or no place.
    cdef Cursor field
    cdef uint32_t count = take_tag_count(cursor)
    cdef uint32_t tag, size
    out.has_tags = count > 0
    out.diverging_epoch = -1
    out.diverging_end = -1
    while count > 0 and not cursor.failed:
        count -= 1
        tag = take_uvarint(cursor)
        size = take_uvarint(cursor)
        field.at = take(cursor, size)
        if cursor.failed or tag != DIVERGING_EPOCH_TAG:
            continue
        field.left = size
        field.failed = 0
        out.diverging_epoch = take_i32(&field)
        out.diverging_end = take_i64(&field)
        skip_tags(&field, 1)
        if field.failed:
            cursor.failed = 1
        elif out.diverging_epoch < 0 or out.diverging_end < 0:
            out.diverging_epoch = -1


cdef object fetched_of(Reader reader, const FetchedPart* part):
    # The records are a view of the frame, without a copy; None for null.
    cdef Py_ssize_t begin
    topic = int.from_bytes(PyBytes_FromStringAndSize(<const char*>part.topic_id, ID_BYTES), "big")
    error = _NO_ERROR if part.error == 0 else error_code(part.error)
    diverging = None if part.diverging_epoch < 0 else (part.diverging_epoch, part.diverging_end)
    records = None
    if part.records != NULL:
        begin = part.records - reader._begin
        records = memoryview(reader._data)[begin:begin + part.records_bytes]
    return Fetched(
        topic, part.partition, error, part.high_watermark, part.log_start_offset, diverging,
        records)


def decode_fetch(Reader reader not None):
    cdef FetchedParts parts
    cdef FetchedPart part
    cdef list found = []
    cdef int status
    session_id = begin_parts(reader, &parts)
    while True:
        status = next_part(&parts, &part)
        if status < 0:
            raise malformed()
        if status == 0:
            return FetchAnswer(session_id, found)
        found.append(fetched_of(reader, &part))
