# cython: language_level=3
from kbroker.core._limits cimport PROCESSORS_MAX
from kbroker.net._acceptor cimport Acceptor
from kbroker.net._connection_rates cimport ConnectionRates
from kbroker.net._quotas cimport ConnectionQuotas
from kbroker.net._types cimport NetworkSettings, Processor, RequestChannel
from kbroker.quota._client_quotas cimport ClientQuotas


cdef class SocketServer:
    cdef NetworkSettings settings
    cdef RequestChannel channel
    cdef ConnectionQuotas* quotas
    cdef ConnectionRates* rates
    cdef Processor* processors[PROCESSORS_MAX]
    cdef int processor_count
    cdef list listeners
    cdef list transports          # keeps those of the listeners
    cdef ClientQuotas client_quotas  # or None; C points into it
    cdef Acceptor* acceptors[16]
    cdef int acceptor_count
    cdef bint started
    cdef bint closing
    cdef object resizing
    cdef int _resize(self, int processors) except -1
    cdef int _add_processor(self) except -1
    cdef int _start_again(self, Processor* processor) noexcept nogil
