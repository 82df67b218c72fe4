# cython: language_level=3
"""TLS as a listener's transport."""

from libc.stdint cimport int64_t, uint8_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.net._listener_transport cimport ListenerTransport

cdef enum:
    FAILURES_MAX = 32             # kinds of them between two looks


# Connections that failed for one reason.
cdef struct TlsFailure:
    unsigned long reason          # OpenSSL's code; or 0
    long verify                   # why the client's certificate was not accepted; 0: it was
    int own                       # OWN_*
    int64_t count
    uint8_t peer[16]              # of the last one
    signed char is_ipv6


# The part that the connections of a listener share; it is freed after them.
cdef struct TlsListener:
    pthread_mutex_t lock          # of rank queue, for all below
    void* context                 # a SSL_CTX
    int64_t handshake_bytes_max   # from a client
    TlsFailure failures[FAILURES_MAX]
    int failure_count


cdef class TlsTransport(ListenerTransport):
    cdef TlsListener shared
    cdef readonly object tls_context
