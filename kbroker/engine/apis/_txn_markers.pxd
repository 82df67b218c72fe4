# cython: language_level=3
"""The markers of a run's outcomes; see _txn_markers.pyx."""

from libc.stdint cimport int32_t, int64_t

from kbroker.coordinator.txn._moves cimport TxnMove
from kbroker.engine.apis._txn_write cimport TxnTouched
from kbroker.engine.worker._context cimport HotWorker
from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Batch, Marker
from kbroker.replica._partition cimport Partition
from kbroker.replica._snapshot cimport Snapshot


# The marker of an outcome in one of its partitions.
cdef struct PartitionMarker:
    Partition* partition          # in the snapshot, while it is entered
    Batch batch


# An outcome, and its markers.
cdef struct TxnMarkers:
    TxnMarkers* next              # of the run
    const TxnMove* move           # its outcome
    Marker marker
    PartitionMarker* partitions
    int32_t count
    Log* slow                     # one whose writes are slow; NULL: none is
    int slow_hangs                # WRITE_HANGS: one of them is under way
    int fails                     # one is not written


# Its partitions, which this broker leads alone. -1: it does not, or they want more than an append:
# the outcome is for Python.
cdef int markers_plan(
    HotWorker* worker, Snapshot* snapshot, TxnMarkers* markers) noexcept nogil

# All of the run, one write for each partition; then each outcome `fails`, or has all its markers.
cdef void markers_write(
    HotWorker* worker, TxnMarkers* first, TxnTouched* touched, int64_t now_ms) noexcept nogil
