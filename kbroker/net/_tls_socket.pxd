# cython: language_level=3
"""The socket under a connection's TLS, as OpenSSL reads and writes it."""

from libc.stdint cimport int8_t, int64_t


cdef struct TlsSocket:
    int fd
    int8_t is_empty               # the last read found less than it had room for
    int8_t skips_empty            # then no further read is tried
    int8_t peer_ended             # its end has come
    int8_t has_more               # what is written is followed by more at once
    int64_t share                 # bytes that may still be read
    int64_t received              # bytes that were read, since they were counted from 0


# Once, with the GIL, before the next one.
cdef int tls_socket_prepare() except -1
# A BIO over `socket`, which must outlive it; NULL: no memory.
cdef void* tls_socket_bio(TlsSocket* socket) noexcept nogil
