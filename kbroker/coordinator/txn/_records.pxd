# cython: language_level=3
"""Keys and values of `__transaction_state`, written; see _records.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.txn._structs cimport TxnImage

cdef size_t txn_value_bound(const TxnImage* image) noexcept nogil
# The end of the value.
cdef uint8_t* txn_put_value(uint8_t* at, const TxnImage* image, int version) noexcept nogil

# A whole batch with the record of an id. The bound is of the batch.
cdef size_t txn_batch_bound(int32_t id_length, const TxnImage* image) noexcept nogil
# Its size in bytes.
cdef uint32_t txn_put_batch(
    uint8_t* memory, const uint8_t* id, int32_t id_length, const TxnImage* image, int version,
    int64_t now_ms, int32_t base_sequence) noexcept nogil
