# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.core._sync cimport pthread_t
from kbroker.net._connection_rates cimport ConnectionRates
from kbroker.net._quotas cimport ConnectionQuotas
from kbroker.net._types cimport Listener, NetworkSettings, Processor

cdef enum:
    SOCKETS_MAX = 8               # addresses of one listener
    REFUSED_MAX = 256             # connections that are closed a little later; of more the first

# A connection that is not served.
cdef struct RefusedConnection:
    int fd
    int64_t until_ms
    void* ip_entry

cdef struct Acceptor:
    pthread_t thread
    int started
    Listener listener
    int stopping                  # atomic
    int event_fd
    int socket_count
    int sockets[SOCKETS_MAX]
    NetworkSettings* settings
    ConnectionQuotas* quotas
    ConnectionRates* rates
    int counts                    # its connections are among those of the broker's rate
    RefusedConnection waiting[REFUSED_MAX]  # a ring, in the order in which they came
    int waiting_first
    int waiting_count
    Processor** processors
    int* processor_count          # atomic, the server's
    int next_processor
    int64_t accepted
    int64_t refused               # over a connection quota
    int64_t throttled             # of them, over the rate of their address
    int64_t waited_ms             # for the broker's rate
    int64_t paused                # times that file descriptors ran out
    int64_t blocked_ns            # waiting for a Processor to take a connection

cdef Acceptor* acceptor_new(
    const Listener* listener, NetworkSettings* settings, ConnectionQuotas* quotas,
    ConnectionRates* rates, Processor** processors, int* processor_count) noexcept nogil
cdef int acceptor_start(Acceptor* acceptor) noexcept nogil
cdef void acceptor_stop(Acceptor* acceptor) noexcept nogil
cdef void acceptor_free(Acceptor* acceptor) noexcept nogil
