# cython: language_level=3, auto_pickle=False
"""CRC-32C for Python code that builds or checks record batches outside of the broker's hot path.

One function over native/crc32c.h, so that a client needs no checksum library. The hot path calls
the header itself. Pure and without state: any thread may call. The GIL is released only above
RELEASE_BYTES, where the checksum takes longer than giving the GIL up and taking it again.
"""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from "crc32c.h" nogil:
    uint32_t kb_crc32c(uint32_t crc, const uint8_t* data, size_t length)

cdef enum:
    RELEASE_BYTES = 128 * 1024


def crc32c(const uint8_t[::1] data not None, uint32_t crc=0):
    """The checksum of `data`; pass an earlier part's result as `crc` to go on from it."""
    cdef size_t length = data.shape[0]
    cdef const uint8_t* begin = &data[0] if length else NULL
    if length < RELEASE_BYTES:
        return kb_crc32c(crc, begin, length)
    with nogil:
        crc = kb_crc32c(crc, begin, length)
    return crc
