# cython: language_level=3
"""Which records of a batch the cleaner keeps, and the batch that is made of them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.log.engine._records cimport Header
from kbroker.log.upkeep._batch_source cimport Step, Trouble
from kbroker.log.upkeep._buffer cimport Buffer
from kbroker.log.upkeep._key_map cimport KeyMap

cdef enum:
    DELETE_HORIZON_BIT = 0x40     # of a batch: its base timestamp says when its tombstones may go


cdef struct Passed:
    # Of a batch: its records, those that stay, and of these the tombstones and the largest time.
    int32_t seen
    int32_t kept
    int32_t tombstones
    int64_t max_timestamp_ms


cdef struct BatchFilter:
    KeyMap map
    int64_t first_dirty           # keys of records below it are not mapped
    int64_t mapped_end            # keys of all others below it are in the map
    int64_t now_ms
    int64_t delete_retention_ms
    int64_t room_bytes            # a batch may be larger by so many than it came
    Buffer key                    # of a record whose key comes in pieces
    Buffer out                    # the batch that is made, or what is next of its records
    Passed passed
    int horizon_is_over           # of the batch: its tombstones go
    void* writing                 # how far its records are written; its own

# In all of these `header` is the batch's, and its `records` may have been unpacked by the caller:
# `codec` is 0 then. STEP_UNPACK: C cannot unpack them.

# Notes the last offset of each key. STEP_DONE; STEP_FULL: `mapped_end` is the first that is not.
cdef Step filter_map(
    BatchFilter* filter, const Header* header, const uint8_t* records, int64_t length, int codec,
    Trouble* trouble) noexcept nogil

# The part of the batch that stays. STEP_DONE: `passed` says how many of its records; if `out` is
# empty the batch stays as it is, or goes whole, else that is the batch. STEP_PACK: as STEP_DONE,
# `out` is the header, and its records, to be packed, come from `filter_write`.
cdef Step filter_batch(
    BatchFilter* filter, const Header* header, const uint8_t* batch, const uint8_t* records,
    int64_t length, int codec, Trouble* trouble) noexcept nogil

# The records that stay, after what is in `out`, up to `out_bytes_max` in it: STEP_MORE. STEP_DONE:
# these were the last. The batch is the one that was filtered last, and there still.
cdef Step filter_write(
    BatchFilter* filter, const Header* header, int64_t out_bytes_max, Trouble* trouble
) noexcept nogil

# Whether there is room for a delete horizon of a batch with so many records: to each its distance
# is noted, by as many bytes as there are in a varint more than before, and of its length one.
cdef inline int filter_has_room(const BatchFilter* filter, int64_t records) noexcept nogil:
    return records * 10 <= filter.room_bytes

# The batch with a delete horizon, into `out`; all of its records stay. They are not packed.
cdef Step filter_give_horizon(
    BatchFilter* filter, const Header* header, const uint8_t* batch, const uint8_t* records,
    int64_t length, Trouble* trouble) noexcept nogil

# The batch without records, into `out`: its offsets, its producer, its largest timestamp. 0 or
# ENOMEM.
cdef int filter_make_empty(
    BatchFilter* filter, const Header* header, const uint8_t* batch) noexcept nogil

cdef void filter_close(BatchFilter* filter) noexcept nogil
