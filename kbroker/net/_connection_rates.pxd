# cython: language_level=3
"""How fast connections may be made, by address and all together; see _connection_rates.pyx."""

from libc.stdint cimport int64_t, uint8_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.core._table cimport Table
from kbroker.quota._rate cimport QuotaRate, QuotaSample, QuotaWindow


# The rate that an address has of its own.
cdef struct AddressLimit:
    uint8_t address[16]
    double bound


# How fast an address has connected.
cdef struct AddressRate:
    AddressRate* older            # by last connection
    AddressRate* newer
    uint8_t address[16]
    QuotaRate rate
    QuotaSample* samples          # in the same allocation


cdef struct ConnectionRates:
    pthread_mutex_t lock          # "queue" in the lock order
    int in_force                  # atomic: some bound is set
    QuotaWindow window
    double bound                  # of all addresses together; below 0: there is none
    double every                  # of each address; below 0: there is none
    QuotaRate all
    QuotaSample* samples
    Table limits                  # of AddressLimit, by address
    Table rates                   # of AddressRate, by address
    AddressRate* oldest
    AddressRate* newest


cdef ConnectionRates* connection_rates_new() noexcept nogil
cdef void connection_rates_free(ConnectionRates* rates) noexcept nogil
# Before there are connections. -1: no memory.
cdef int connection_rates_window(
    ConnectionRates* rates, const QuotaWindow* window) noexcept nogil
cdef void connection_rates_bound(ConnectionRates* rates, double bound) noexcept nogil
# Other limits; the table is taken over.
cdef void connection_rates_limit(
    ConnectionRates* rates, double every, Table* limits) noexcept nogil
# Room in such a table. -1: no memory.
cdef int address_limit_put(
    Table* limits, const uint8_t* address, double bound) noexcept nogil
cdef void address_limits_free(Table* limits) noexcept nogil

# How long no further connection is to be accepted, in ms. `counts`: on this listener it does.
cdef int64_t connection_rates_wait_ms(ConnectionRates* rates, int64_t now_ms) noexcept nogil
# 0: the connection is served. Else it is not, and does not count: it is closed after so many ms.
cdef int64_t connection_rates_refuse_ms(
    ConnectionRates* rates, const uint8_t* address, int counts, int64_t now_ms) noexcept nogil
