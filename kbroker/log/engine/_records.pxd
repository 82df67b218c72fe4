# cython: language_level=3
"""What a record batch (magic 2) is made of, and the walk over its records."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.core._arena cimport Arena
from kbroker.log.engine._types cimport Batch

# Where the fields of a batch's header stand, and the bits of its attributes.
cdef enum:
    AT_BASE_OFFSET = 0
    AT_LENGTH = 8
    AT_LEADER_EPOCH = 12
    AT_MAGIC = 16
    AT_CRC = 17
    AT_ATTRIBUTES = 21
    AT_LAST_OFFSET_DELTA = 23
    AT_BASE_TIMESTAMP = 27
    AT_MAX_TIMESTAMP = 35
    AT_PRODUCER_ID = 43
    AT_PRODUCER_EPOCH = 51
    AT_BASE_SEQUENCE = 53
    AT_RECORD_COUNT = 57
    HEADER_BYTES = 61             # and the records begin
    LOG_OVERHEAD_BYTES = 12       # base offset and length, which the length does not count
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20


cdef struct Header:
    int64_t base_offset
    int64_t size_bytes            # all of the batch, its first 12 bytes included
    int32_t leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp_ms
    int64_t max_timestamp_ms
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count


cdef struct Rules:
    # What the topic asks of every record, and what the caller wants to find.
    int8_t compacted              # a null key is refused
    int8_t gaps                   # offsets may leave gaps, as compaction makes them
    int8_t log_append_time        # the broker's clock counts, and a batch may not say that it did
    int64_t timestamp_min_ms      # CreateTime window, inclusive; the extremes for none
    int64_t timestamp_max_ms
    int8_t timestamps_refused     # those of all records, whatever they are; with an empty window
    int64_t unpacked_bytes_max    # what the records may unpack to
    int64_t wanted_timestamp_ms   # the first record at or after it is noted; INT64_MAX for none
    int32_t wanted_delta_min      # ... with this offset delta or a larger one
    Arena* arena                  # where bad records are listed; NULL: only counted


cdef struct Walk:
    # What a walk over the records found. With an error, `record` is the one at fault or -1. A
    # record that the topic does not take is noted, and the walk goes on: what is not well formed
    # further on is what the batch is refused for.
    int16_t error
    int32_t record
    const char* message
    int64_t max_timestamp_ms
    int32_t max_timestamp_delta   # the offset delta of the first record that has it
    int32_t found_delta           # of the first at or after the wanted timestamp, or -1
    int64_t found_timestamp_ms
    int64_t unpacked_bytes        # what compressed records took
    int32_t bad_count
    int32_t* bad                  # as Batch.bad_records
    int bad_timestamps            # at least one of them


# Whether the codec of a batch takes several times as long as Snappy and LZ4; its header is there. A
# Produce request has exactly one batch of magic 2 for a partition.
cdef int batch_unpacks_slowly(const Batch* batch) noexcept nogil

cdef enum OutlineVerdict:
    OUTLINE_NORMAL = 0            # batch.error says how
    OUTLINE_DAMAGED = 1           # not even its size can be believed: the whole request fails
    OUTLINE_TRANSACTIONAL = 2     # needs the request's transactional id

# From the first bytes alone. A piece of a batch after the first is cut off.
cdef int batch_outline(Batch* batch) noexcept nogil

cdef const char* bad_record_text(int32_t bad_record) noexcept nogil

# The most that a client's records may unpack to. Records of a log have no bound by ratio.
cdef int64_t unpacked_bytes_max(int64_t packed_bytes) noexcept nogil

# Rules that refuse nothing and look for nothing.
cdef void rules_none(Rules* rules) noexcept nogil

# Fills the header from at least HEADER_BYTES bytes; judges nothing.
cdef void header_read(const uint8_t* data, Header* header) noexcept nogil

# 1 if a log may hold such a header: sizes, magic and counts agree with each other.
cdef int header_plausible(const Header* header) noexcept nogil

# Whether a log remembers its producer by it: who numbers batches, or has a transaction. Markers of
# transactions, and offsets that are committed in one, carry no sequence.
cdef inline int has_producer(const Header* header) noexcept nogil:
    return header.producer_id >= 0 and (
        header.base_sequence >= 0 or header.attributes & TRANSACTIONAL_BIT)

# The CRC-32C of a whole batch of `size_bytes`, as its header should name it.
cdef uint32_t batch_crc(const uint8_t* data, int64_t size_bytes) noexcept nogil

# CRC-32C of `length` bytes continued from `crc`.
cdef uint32_t crc32c(uint32_t crc, const uint8_t* data, int64_t length) noexcept nogil

# Walks every record. 0: done, `walk` says how. 1: the codec's library is missing here.
cdef int records_walk(
    const uint8_t* records, int64_t length, int codec, int32_t count, int64_t base_timestamp_ms,
    const Rules* rules, Walk* walk) noexcept nogil

# Everything that can be said of a produced batch without a lock; answers a ValidateVerdict.
cdef int batch_validate(
    Batch* batch, const Rules* rules, int64_t max_message_bytes, int log_append_time,
    int64_t now_ms) noexcept nogil

# The time of a valid batch goes into its bytes, right before it is appended: until then it may have
# to wait, and is validated again as it came.
cdef void batch_put_time(Batch* batch) noexcept nogil
