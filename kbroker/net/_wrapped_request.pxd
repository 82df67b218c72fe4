# cython: language_level=3
from kbroker.net._types cimport Channel, Request, RequestChannel


cdef class WrappedRequest:
    cdef Request* node            # NULL: it has been answered
    cdef object owner             # keeps the request channel
    cdef RequestChannel* request_channel
    cdef list listeners           # their names, by index
    cdef readonly bint authenticates
    cdef readonly bint names_peer
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly object client_id
    cdef readonly bytes body
    cdef readonly object reason
    cdef readonly long long received_ns
    cdef Channel* _channel(self) except NULL
    cdef int _require_unanswered(self) except -1


# `owner` has the request channel and keeps it until the request is gone.
cdef WrappedRequest request_wrap(
    object owner, RequestChannel* request_channel, list listeners, Request** place, object reason)
