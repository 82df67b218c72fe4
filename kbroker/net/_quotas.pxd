# cython: language_level=3
from libc.stdint cimport int32_t, uint8_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.core._table cimport Table

# An address of IPv4, or a /64 of IPv6.
cdef struct NetworkEntry:
    uint8_t first[16]             # address
    int32_t addresses             # entries
    int32_t opening               # connections that have not authenticated yet

cdef struct IpEntry:
    ConnectionQuotas* quotas
    NetworkEntry* network
    uint8_t address[16]
    int32_t count
    int32_t bound                 # -1: the general one

cdef struct ConnectionQuotas:
    pthread_mutex_t lock
    int32_t per_ip_max
    int32_t total_max
    int32_t total
    int32_t opening_max           # not authenticated yet: of all,
    int32_t opening_per_ip_max    # and of one network
    int32_t opening
    Table entries                 # of IpEntry, by address
    Table networks                # of NetworkEntry, by the first address

cdef ConnectionQuotas* quotas_new(int32_t per_ip_max, int32_t total_max) noexcept nogil
cdef void quotas_free(ConnectionQuotas* quotas) noexcept nogil
cdef void quotas_bound(
    ConnectionQuotas* quotas, int32_t per_ip_max, int32_t total_max) noexcept nogil
cdef int quotas_override(
    ConnectionQuotas* quotas, const uint8_t* address, int32_t bound) noexcept nogil
# `opens`: the connection is to shake hands or to authenticate first.
cdef IpEntry* quota_acquire(
    ConnectionQuotas* quotas, const uint8_t* address, int opens, int of_clients) noexcept nogil
cdef void quota_opened(void* entry) noexcept nogil
# Of its network.
cdef int32_t quota_opening(const void* entry) noexcept nogil
cdef int quota_is_crowded(const void* entry) noexcept nogil
cdef void quota_release(void* entry, int opens) noexcept nogil
