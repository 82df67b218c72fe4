# cython: language_level=3
"""The plain data that the units of the log hand to each other and to the units of requests.

A `FileSlice` keeps its `Segment` (and so the file descriptor) alive whatever retention, truncation
or deletion do meanwhile. Codes are Kafka's, never an errno.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.core._arena cimport Arena


cdef struct Segment:
    int refs                      # atomic: one for the log's list, one for every slice lent
    int fd                        # the .log file
    int64_t base_offset
    int64_t size_bytes            # atomic; published after the write
    void* index                   # the owner's own part: indexes, largest timestamp, paths


# A place between two batches: what lies below it, in offsets and in the files.
cdef struct Bound:
    int64_t offset
    int64_t segment_base          # of the segment that it lies in
    int64_t position              # in that segment's file


cdef inline Bound unknown_bound(int64_t offset) noexcept nogil:
    # Where it lies in the files is looked up when that is needed.
    cdef Bound bound
    bound.offset = offset
    bound.segment_base = -1
    bound.position = -1
    return bound


cdef struct FileSlice:
    Segment* segment              # one reference; slice_release() drops it; NULL when length is 0
    int fd
    int64_t position
    int64_t length
    int cold                      # not all of it is in memory: who reads it now may wait
    uint8_t* room                 # in: COPIED_SLICE_BYTES_MAX for a copy of it; NULL: for none
    int is_copied                 # all of it is in the room


cdef struct Marker:
    # The end of a transaction, as a control batch has it.
    int32_t coordinator_epoch
    int16_t transaction_version   # of the request that asks for it; the log does not keep it
    int8_t committed
    # It is written only if this transaction is still open: its first offset, and the last one of
    # its producer's last batch. A first offset of -1: whichever is open.
    int64_t first_offset
    int64_t last_offset
    # Which outcome it is of, in the order of a coordinator's run: later ones have higher numbers. A
    # run of 0: not known. The log does not keep them.
    int64_t run
    int64_t number


cdef enum:
    NO_GUARD_NEEDED = -1          # the guard of a batch where verification is off


cdef struct Batch:
    # One record batch in a produce request's frame; patched in place.
    uint8_t* data
    uint32_t length_bytes         # all of it, from base offset to the last record
    uint32_t sent_bytes           # what max.message.bytes bounds, where not length_bytes; or 0
    int8_t acks                   # the request's: -1 is checked against min.insync.replicas
    int8_t api_version            # the request's (zstd needs >= 7)
    int8_t prechecked             # its compressed records were validated by the caller
    int8_t repacked               # the caller has the batch that is stored instead
    int8_t alone                  # in, for all of a group: refused where there are followers
    int8_t awaits_flush           # for the caller: its log was due when it was appended
    int8_t awaits_followers       # out: acks is -1, and it lies above the high watermark
    int16_t error                 # in and out: a Kafka error code; not 0: the batch is left out
    int32_t error_record          # index of the record at fault, or -1
    const char* error_message     # static text or NULL
    int8_t sends_message          # the text is for the client, though no record of it is at fault
    Arena* arena                  # where bad_records may be; NULL: only the first is kept
    int32_t* bad_records          # place * 2, + 1 where it is the timestamp; bad_record_text()
    int32_t bad_record_count
    int32_t led_since             # out, with awaits_followers: see replica/_partition.pxd
    int64_t* unpacked_left        # bytes that the rest of its request may unpack to; NULL: no bound
    int64_t base_offset           # out, -1 unless appended (or a duplicate: the first one's)
    int64_t append_time_ms        # out, -1 for CreateTime
    int64_t log_start_offset      # out; -1 if the batch did not come as far as the log
    int64_t guard                 # in: of the verification of its transaction; 0: there was none
    const Marker* marker          # in: it is a control batch that this broker makes; else NULL
    Batch* next                   # the next batch of the same partition's group, arrival order
    # filled by the validation:
    int8_t codec                  # 0 none 1 gzip 2 snappy 3 lz4 4 zstd
    int16_t attributes
    int16_t producer_epoch
    int32_t record_count
    int32_t base_sequence
    int64_t producer_id
    int64_t max_timestamp_ms
    int64_t last_offset           # out, of the last record, once appended


cdef enum:
    READ_WOULD_WAIT = 32000       # no code of Kafka's


# The waits that a read may have; where it would have others the answer is READ_WOULD_WAIT.
cdef enum Patience:
    WAITS_FOR_NOTHING = 0         # not even for a log's lock, which a roll holds
    WAITS_FOR_LOCKS = 1           # not for the disk
    WAITS_FOR_DISK = 2


# The results of a validation beside a Kafka error in batch.error:
cdef enum ValidateVerdict:
    VALIDATED = 0                 # batch.error says how
    NEEDS_PYTHON = 1              # compressed with a codec that C cannot open here
