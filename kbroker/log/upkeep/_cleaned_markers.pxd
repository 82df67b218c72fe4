# cython: language_level=3
"""The markers of transactions that a cleaning reads: which of them stay."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.core._table cimport Table
from kbroker.log.engine._records cimport Header
from kbroker.log.upkeep._batch_filter cimport BatchFilter
from kbroker.log.upkeep._batch_source cimport Step, Trouble


cdef struct CleanedMarkers:
    Table with_data               # by producer id: transactions of which data was read
    int64_t* gone                 # offsets, of the segments that are being made one
    int32_t gone_count
    int32_t gone_max


cdef void markers_close(CleanedMarkers* markers) noexcept nogil

# A batch of a transaction has been read. 0 or ENOMEM.
cdef int markers_note_data(CleanedMarkers* markers, const Header* header) noexcept nogil
# Of a control batch, each once, in the order of the log; its `records` are not packed. As
# `filter_batch`. `is_needed`: where nothing else says so, a producer is known by it.
cdef Step filter_marker(
    CleanedMarkers* markers, BatchFilter* filter, const Header* header, const uint8_t* batch,
    const uint8_t* records, int64_t length, int is_needed, Trouble* trouble) noexcept nogil
