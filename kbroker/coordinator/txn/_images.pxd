# cython: language_level=3
"""Images of transactional ids between C and Python; see _images.pyx."""

from kbroker.coordinator.txn._structs cimport TxnImage

# The caller owns its places.
cdef int image_take(object image, TxnImage* taken) except -1
cdef object image_of(const TxnImage* image)
