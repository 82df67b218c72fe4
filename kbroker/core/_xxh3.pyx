# cython: language_level=3, auto_pickle=False
"""XXH3-64 for Python code: one function over native/xxh3.h.

Pure and without state: any thread may call. The GIL is released only above RELEASE_BYTES, where the
hash takes longer than giving the GIL up and taking it again.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from "xxh3.h" nogil:
    uint64_t kb_xxh3(const uint8_t* data, size_t length)

cdef enum:
    RELEASE_BYTES = 64 * 1024


def xxh3_64(const uint8_t[::1] data not None):
    """The hash of `data` with seed 0, as a signed number of 64 bits."""
    cdef size_t length = data.shape[0]
    cdef const uint8_t* begin = &data[0] if length else NULL
    cdef uint64_t found
    if length < RELEASE_BYTES:
        return <int64_t>kb_xxh3(begin, length)
    with nogil:
        found = kb_xxh3(begin, length)
    return <int64_t>found
