# cython: language_level=3
from libc.stdint cimport int32_t, uint8_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.core._table cimport Table

cdef struct IpEntry:
    ConnectionQuotas* quotas
    uint8_t address[16]
    int32_t count
    int32_t opening               # of them: not authenticated yet
    int32_t bound                 # -1: the general one

cdef struct ConnectionQuotas:
    pthread_mutex_t lock
    int32_t per_ip_max
    int32_t total_max
    int32_t total
    int32_t opening_max           # not authenticated yet: of all,
    int32_t opening_per_ip_max    # and of one address
    int32_t opening
    Table entries                 # of IpEntry, by address

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
cdef int quota_is_crowded(const void* entry) noexcept nogil
cdef void quota_release(void* entry, int opens) noexcept nogil
