# cython: language_level=3
from kbroker.core._limits cimport PROCESSORS_MAX
from kbroker.net._acceptor cimport Acceptor
from kbroker.net._quotas cimport ConnectionQuotas
from kbroker.net._types cimport Channel, NetworkSettings, Processor, Request, RequestChannel


cdef class SocketServer:
    cdef NetworkSettings settings
    cdef RequestChannel channel
    cdef ConnectionQuotas* quotas
    cdef Processor* processors[PROCESSORS_MAX]
    cdef int processor_count
    cdef list listeners
    cdef Acceptor* acceptors[16]
    cdef int acceptor_count
    cdef bint started
    cdef bint closing
    cdef object resizing
    cdef int _resize(self, int processors) except -1
    cdef int _add_processor(self) except -1
    cdef int _start_again(self, Processor* processor) noexcept nogil


cdef class WrappedRequest:
    cdef Request* node
    cdef SocketServer server
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly object client_id
    cdef readonly bytes body
    cdef readonly object reason
    cdef readonly long long received_ns
    cdef Channel* _channel(self) except NULL


cdef WrappedRequest request_wrap(SocketServer server, Request** place, object reason)
