# cython: language_level=3
"""What native/codecs.h gives: compressed records, read window by window; inline, no module."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "codecs.h" nogil:
    enum:
        KB_STREAM_OK
        KB_STREAM_TOO_LONG
        KB_STREAM_NO_MEMORY
        KB_STREAM_NO_CODEC
        KB_CODEC_NONE
        KB_CODEC_GZIP
        KB_CODEC_ZSTD
    ctypedef struct kb_stream:
        const uint8_t* at
        const uint8_t* end
        int64_t end_offset
        int status
    int kb_stream_open(kb_stream* stream, int codec, const uint8_t* data, size_t length,
                       int64_t output_bytes_max)
    int kb_stream_refill(kb_stream* stream)
    void kb_stream_close(kb_stream* stream)
    unsigned kb_zstd_version()
