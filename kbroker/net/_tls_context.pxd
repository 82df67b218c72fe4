# cython: language_level=3
"""The TLS that all connections of a listener share: certificate, key, trust store, versions."""


cdef class TlsContext:
    cdef void* context            # a SSL_CTX, with one reference
    cdef void* certificate        # the first of the chain; a X509, or NULL
    cdef int asks_clients         # for a certificate

    cdef int _add(self, void* certificate)
