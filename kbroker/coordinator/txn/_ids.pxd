# cython: language_level=3
"""The transactional ids of a broker, in memory; see _ids.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.txn._structs cimport TxnEnded, TxnEntry, TxnIds

# Around every look at an entry. Nothing is called or waited for while it is held.
cdef void ids_lock() noexcept nogil
cdef void ids_unlock() noexcept nogil

# NULL: it is not there, or Python's alone.
cdef TxnEntry* ids_find_locked(
    const TxnIds* ids, const uint8_t* name, int32_t length) noexcept nogil


cdef class Transaction:
    cdef TxnEntry* entry
    cdef str name                 # while it can be found by name
    cdef public object order      # MarkerOrder of the markers that are being written, or None
    cdef object its_client        # Session, or None


cdef class TransactionalIds:
    cdef TxnIds ids
    cdef TxnEnded its_ended
    cdef dict known               # by name
