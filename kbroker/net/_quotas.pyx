# cython: language_level=3
"""ConnectionQuotas: how many connections each address, and all together, may hold.

Acceptors acquire before a connection is handed on, Processors release when it ends, so counts go
down on every disconnect. An address is its 16 bytes, IPv4 as IPv4-mapped. Entries of addresses
without connections and without an override are removed, so the tables hold no more of those than
there are connections.

Connections that have not authenticated yet (opening) are counted apart, since any client may have
them: of one network no more than `opening_per_ip_max` are taken. A network is an address, or the
/64 of one of IPv6, since that is what a host has. Of all networks more than `opening_max` are a
crowd, in which each that comes has another one closed (`_opening`).

One mutex, held for a short search; last in the lock order, with the request
queue's.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from kbroker.core._lock_order cimport RANK_QUEUE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._name_hash cimport name_hash
from kbroker.core._require cimport OF_COUNT, require, require_of
from kbroker.core._sync cimport pthread_mutex_destroy
from kbroker.core._table cimport (
    table_find, table_free, table_places, table_put, table_remove, table_room)


cdef ConnectionQuotas* quotas_new(int32_t per_ip_max, int32_t total_max) noexcept nogil:
    # As many may be opening as there may be; the caller may have fewer.
    cdef ConnectionQuotas* quotas = <ConnectionQuotas*>calloc(1, sizeof(ConnectionQuotas))
    if quotas != NULL:
        kb_mutex_init(&quotas.lock)
        quotas.per_ip_max = per_ip_max
        quotas.total_max = total_max
        quotas.opening_max = total_max
        quotas.opening_per_ip_max = per_ip_max
    return quotas


cdef void quotas_free(ConnectionQuotas* quotas) noexcept nogil:
    """Once no connection and no acceptor is left."""
    cdef int64_t place
    if quotas == NULL:
        return
    for place in range(table_places(&quotas.entries)):
        free(quotas.entries.places[place])
    for place in range(table_places(&quotas.networks)):
        free(quotas.networks.places[place])
    table_free(&quotas.entries)
    table_free(&quotas.networks)
    pthread_mutex_destroy(&quotas.lock)
    free(quotas)


cdef uint32_t _hash(const void* entry) noexcept nogil:
    return name_hash((<const IpEntry*>entry).address, 16)


cdef inline int _is_address(const void* entry, const void* address) noexcept nogil:
    return memcmp((<const IpEntry*>entry).address, address, 16) == 0


cdef uint32_t _network_hash(const void* network) noexcept nogil:
    return name_hash((<const NetworkEntry*>network).first, 16)


cdef inline int _is_first(const void* network, const void* address) noexcept nogil:
    return memcmp((<const NetworkEntry*>network).first, address, 16) == 0


cdef inline int _is_ipv4(const uint8_t* address) noexcept nogil:
    cdef int at
    for at in range(10):
        if address[at] != 0:
            return 0
    return address[10] == 0xFF and address[11] == 0xFF


cdef NetworkEntry* _network_locked(
    ConnectionQuotas* quotas, const uint8_t* address
) noexcept nogil:
    cdef uint8_t first[16]
    cdef uint32_t hash
    cdef NetworkEntry* network
    memcpy(first, address, 16)
    if not _is_ipv4(address):
        memset(first + 8, 0, 8)
    hash = name_hash(first, 16)
    network = <NetworkEntry*>table_find(&quotas.networks, hash, _is_first, first)
    if network != NULL or table_room(&quotas.networks, _network_hash) != 0:
        return network
    network = <NetworkEntry*>calloc(1, sizeof(NetworkEntry))
    if network != NULL:
        memcpy(network.first, first, 16)
        table_put(&quotas.networks, network, hash)
    return network


cdef void _leave_network_locked(IpEntry* entry) noexcept nogil:
    entry.network.addresses -= 1
    if entry.network.addresses > 0:
        return
    table_remove(&entry.quotas.networks, entry.network, _network_hash,
                 "connection quotas: a network that leaves is in the table")
    free(entry.network)


cdef IpEntry* _entry_locked(ConnectionQuotas* quotas, const uint8_t* address) noexcept nogil:
    cdef uint32_t hash = name_hash(address, 16)
    cdef IpEntry* entry = <IpEntry*>table_find(&quotas.entries, hash, _is_address, address)
    if entry != NULL or table_room(&quotas.entries, _hash) != 0:
        return entry
    entry = <IpEntry*>calloc(1, sizeof(IpEntry))
    if entry == NULL:
        return NULL
    entry.network = _network_locked(quotas, address)
    if entry.network == NULL:
        free(entry)
        return NULL
    entry.network.addresses += 1
    memcpy(entry.address, address, 16)
    entry.quotas = quotas
    entry.bound = -1
    table_put(&quotas.entries, entry, hash)
    return entry


cdef void _drop_unused_locked(IpEntry* entry) noexcept nogil:
    if entry.count > 0 or entry.bound >= 0:
        return
    table_remove(&entry.quotas.entries, entry, _hash,
                 "connection quotas: an address that leaves is in the table")
    _leave_network_locked(entry)
    free(entry)


cdef void quotas_bound(
    ConnectionQuotas* quotas, int32_t per_ip_max, int32_t total_max,
) noexcept nogil:
    """Other bounds, without overrides, for the connections that are to come."""
    cdef IpEntry* entry
    cdef int64_t place = 0
    lock_ranked(&quotas.lock, RANK_QUEUE)
    quotas.per_ip_max = per_ip_max
    quotas.total_max = total_max
    while place < table_places(&quotas.entries):
        entry = <IpEntry*>quotas.entries.places[place]
        if entry != NULL:
            entry.bound = -1
            _drop_unused_locked(entry)
        # Where one has left, one of those after it may have come to its place.
        if quotas.entries.places[place] == entry:
            place += 1
    unlock_ranked(&quotas.lock, RANK_QUEUE)


cdef int quotas_override(
    ConnectionQuotas* quotas, const uint8_t* address, int32_t bound,
) noexcept nogil:
    """max.connections.per.ip.overrides; -1: no memory."""
    cdef IpEntry* entry
    lock_ranked(&quotas.lock, RANK_QUEUE)
    entry = _entry_locked(quotas, address)
    if entry != NULL:
        entry.bound = bound
    unlock_ranked(&quotas.lock, RANK_QUEUE)
    return 0 if entry != NULL else -1


cdef IpEntry* quota_acquire(
    ConnectionQuotas* quotas, const uint8_t* address, int opens, int of_clients
) noexcept nogil:
    """NULL: over a bound, the connection is to be closed. `of_clients` 0: of a listener for brokers
    alone, which the bound of all does not keep out, as in Apache Kafka."""
    cdef IpEntry* entry
    cdef int32_t bound
    lock_ranked(&quotas.lock, RANK_QUEUE)
    entry = _entry_locked(quotas, address)
    if entry != NULL:
        bound = entry.bound if entry.bound >= 0 else quotas.per_ip_max
        if (
            entry.count >= bound or (of_clients and quotas.total >= quotas.total_max)
            or (opens and entry.network.opening >= quotas.opening_per_ip_max)
        ):
            _drop_unused_locked(entry)
            entry = NULL
        else:
            entry.count += 1
            entry.network.opening += opens
            quotas.total += 1
            quotas.opening += opens
    unlock_ranked(&quotas.lock, RANK_QUEUE)
    return entry


cdef int32_t _counted_locked(const ConnectionQuotas* quotas) noexcept nogil:
    cdef const IpEntry* entry
    cdef int32_t total = 0
    cdef int64_t place
    for place in range(table_places(&quotas.entries)):
        entry = <const IpEntry*>quotas.entries.places[place]
        if entry != NULL:
            total += entry.count
    return total


cdef void quota_opened(void* entry) noexcept nogil:
    """It has authenticated, or has come to its end before."""
    cdef IpEntry* ip = <IpEntry*>entry
    if ip == NULL:
        return
    lock_ranked(&ip.quotas.lock, RANK_QUEUE)
    _opened_locked(ip, 1)
    unlock_ranked(&ip.quotas.lock, RANK_QUEUE)


cdef void _opened_locked(IpEntry* ip, int opens) noexcept nogil:
    ip.network.opening -= opens
    ip.quotas.opening -= opens
    require(ip.network.opening >= 0, "connection quotas: what has opened was opening",
            ip.network.opening, 0)


cdef int32_t quota_opening(const void* entry) noexcept nogil:
    cdef const IpEntry* ip = <const IpEntry*>entry
    cdef int32_t opening
    if ip == NULL:
        return 0
    lock_ranked(&ip.quotas.lock, RANK_QUEUE)
    opening = ip.network.opening
    unlock_ranked(&ip.quotas.lock, RANK_QUEUE)
    return opening


cdef int quota_is_crowded(const void* entry) noexcept nogil:
    cdef const IpEntry* ip = <const IpEntry*>entry
    cdef int is_crowded
    if ip == NULL:
        return 0
    lock_ranked(&ip.quotas.lock, RANK_QUEUE)
    is_crowded = ip.quotas.opening > ip.quotas.opening_max
    unlock_ranked(&ip.quotas.lock, RANK_QUEUE)
    return is_crowded


cdef void quota_release(void* entry, int opens) noexcept nogil:
    cdef IpEntry* ip = <IpEntry*>entry
    cdef ConnectionQuotas* quotas
    if ip == NULL:
        return
    quotas = ip.quotas
    lock_ranked(&quotas.lock, RANK_QUEUE)
    _opened_locked(ip, opens)
    ip.count -= 1
    quotas.total -= 1
    # Without connections it is freed: no other connection may have it.
    require(ip.count >= 0, "connection quotas: a connection that ends was counted", ip.count, 0)
    if not require_of(OF_COUNT, -1, NULL, quotas.total >= ip.count,
                      "connection quotas: an address's connections are among all", quotas.total,
                      ip.count):
        quotas.total = _counted_locked(quotas)
    _drop_unused_locked(ip)
    unlock_ranked(&quotas.lock, RANK_QUEUE)
