# cython: language_level=3
"""The bytes of a follower's Fetch and of its answer, as `replica_fetch.py` describes them.

Compiled, because every round of a follower has one of each, and a call of Python for each field
took as long as the append. With the GIL. The Reader checks a response's sizes and counts.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from types import MappingProxyType

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import error_code
from kbroker.peer.replica_fetch import WITHOUT_SESSION, Asked, FetchAnswer, Fetched
from kbroker.protocol._cursor cimport kb_get_u16, kb_get_u32, kb_get_u64, kb_put_u32, kb_put_u64
from kbroker.protocol._wire cimport Reader, Writer, reader_of, writer_of

cdef enum:
    ID_BYTES = 16
    REPLICA_STATE_TAG = 1
    DIVERGING_EPOCH_TAG = 0

    ASKED_BYTES = 4 + 4 + 8 + 4 + 8 + 4 + 1  # one partition, with its tags
    STATE_BYTES = 4 + 8 + 1

cdef object _NO_ERROR = ErrorCode.NONE
cdef object _NOTHING = MappingProxyType({})


# --- the request ----------------------------------------------------------------------------------

cdef int _put_i32(Writer writer, int32_t value) except -1:
    kb_put_u32(writer._grow(4), <uint32_t>value)
    return 0


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


def encode_fetch(
    int32_t replica_id, int64_t broker_epoch, asked, bounds, metadata=WITHOUT_SESSION,
    forgotten=_NOTHING,
):
    cdef Writer writer = writer_of(True)
    cdef int32_t bytes_max = bounds.partition_max_bytes
    cdef uint8_t* state
    _put_i32(writer, bounds.max_wait_ms)
    _put_i32(writer, bounds.min_bytes)
    _put_i32(writer, bounds.max_bytes)
    writer._grow(1)[0] = 0        # isolation level: a follower reads up to the log's end
    _put_i32(writer, metadata.session_id)
    _put_i32(writer, metadata.epoch)
    writer._put_size(len(asked))
    for topic_id, partitions in asked.items():
        writer._put(topic_id.bytes)
        writer._put_size(len(partitions))
        for each in partitions:
            _put_asked(writer, each, bytes_max)
        _put_no_tags(writer)
    writer._put_size(len(forgotten))
    for topic_id, indexes in forgotten.items():
        writer._put(topic_id.bytes)
        writer._put_size(len(indexes))
        for index in indexes:
            _put_i32(writer, index)
        _put_no_tags(writer)
    writer._put_size(0)           # rack
    writer._put_unsigned_varint(1)
    writer._put_unsigned_varint(REPLICA_STATE_TAG)
    writer._put_unsigned_varint(STATE_BYTES)
    state = writer._grow(STATE_BYTES)
    kb_put_u32(state, <uint32_t>replica_id)
    kb_put_u64(state + 4, <uint64_t>broker_epoch)
    state[STATE_BYTES - 1] = 0    # no tagged fields
    return writer.getvalue()


# --- the response ---------------------------------------------------------------------------------

cdef int32_t _get_i32(Reader reader) except? -1:
    return <int32_t>kb_get_u32(reader._take(4))


cdef int64_t _get_i64(Reader reader) except? -1:
    return <int64_t>kb_get_u64(reader._take(8))


cdef object _get_error(Reader reader):
    cdef int16_t code = <int16_t>kb_get_u16(reader._take(2))
    return _NO_ERROR if code == 0 else error_code(code)


cdef int _skip_tags(Reader reader) except -1:
    cdef int64_t count = reader._tag_count()
    while count > 0:
        count -= 1
        reader._unsigned_varint()
        reader._take(reader._unsigned_varint())
    return 0


cdef object _get_view(Reader reader):
    # Of the frame, without a copy; None for null.
    cdef int64_t size = reader._size()
    cdef Py_ssize_t begin = reader._position
    if size < 0:
        return None
    reader._take(size)
    return memoryview(reader._data)[begin:begin + size]


cdef tuple _get_diverging(Reader reader):
    # The epoch and its end in the tagged fields of a partition; None: not there, or no place.
    cdef int64_t count = reader._tag_count()
    cdef int64_t tag, end_offset
    cdef int32_t epoch
    cdef Reader field
    found = None
    while count > 0:
        count -= 1
        tag = reader._unsigned_varint()
        content = reader._bytes(reader._unsigned_varint())
        if tag != DIVERGING_EPOCH_TAG:
            continue
        field = reader_of(content, True)
        epoch = _get_i32(field)
        end_offset = _get_i64(field)
        _skip_tags(field)
        found = (epoch, end_offset) if epoch >= 0 and end_offset >= 0 else None
    return found


cdef object _get_partition(Reader reader, topic):
    cdef int32_t partition = _get_i32(reader)
    error = _get_error(reader)
    cdef int64_t high_watermark = _get_i64(reader)
    cdef int64_t log_start
    _get_i64(reader)              # last stable offset: a follower has its own
    log_start = _get_i64(reader)
    for _ in range(reader.nullable_array() or 0):
        reader._take(2 * 8)       # an aborted transaction: for consumers
        _skip_tags(reader)
    _get_i32(reader)              # preferred read replica: for consumers
    records = _get_view(reader)
    diverging = _get_diverging(reader)
    return Fetched(topic, partition, error, high_watermark, log_start, diverging, records)


def decode_fetch(Reader reader not None):
    cdef list found = []
    _get_i32(reader)              # throttle time
    error = _get_error(reader)
    cdef int32_t session_id = _get_i32(reader)
    if error is not _NO_ERROR:
        raise KafkaError(error, "the leader refused the fetch")
    for _ in range(reader.array()):
        topic = int.from_bytes(reader._bytes(ID_BYTES), "big")
        for _ in range(reader.array()):
            found.append(_get_partition(reader, topic))
        _skip_tags(reader)
    _skip_tags(reader)
    return FetchAnswer(session_id, found)
