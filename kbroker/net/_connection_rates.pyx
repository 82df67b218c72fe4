# cython: language_level=3
"""How fast connections may be made: by each address, and on this broker all together (KIP-612).

Beyond the rate of all, acceptors wait, a second at most: clients queue in the kernel's backlog. A
connection beyond its address's rate is accepted and not served: it is closed after the delay, so
that its client does not try again at once. It does not count.

An address is its 16 bytes, IPv4 as IPv4-mapped. The rates of so many addresses are known as
connected last; of more the oldest is forgotten. Acceptors, and who sets limits; one mutex, "queue"
in the lock order. `now_ms` is an argument.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from kbroker.core._atomics cimport kb_store_int
from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_random_key
from kbroker.core._lock_order cimport RANK_QUEUE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._sync cimport pthread_mutex_destroy
from kbroker.core._table cimport (
    table_find, table_free, table_places, table_put, table_remove, table_room)
from kbroker.quota._rate cimport rate_delay_ms, rate_record

cdef enum:
    ADDRESSES_MAX = 20000

cdef unsigned long long _key = kb_random_key()


cdef ConnectionRates* connection_rates_new() noexcept nogil:
    cdef ConnectionRates* rates = <ConnectionRates*>calloc(1, sizeof(ConnectionRates))
    cdef QuotaWindow window
    if rates == NULL:
        return NULL
    kb_mutex_init(&rates.lock)
    rates.bound = -1
    rates.every = -1
    window.samples = 11
    window.sample_ms = 1000
    if connection_rates_window(rates, &window) != 0:
        connection_rates_free(rates)
        return NULL
    return rates


cdef int connection_rates_window(
    ConnectionRates* rates, const QuotaWindow* window
) noexcept nogil:
    cdef QuotaSample* samples = <QuotaSample*>calloc(
        <size_t>window.samples + 1, sizeof(QuotaSample))
    if samples == NULL:
        return -1
    free(rates.samples)
    rates.samples = samples
    rates.window = window[0]
    memset(&rates.all, 0, sizeof(rates.all))
    rates.all.samples = samples
    return 0


cdef void connection_rates_free(ConnectionRates* rates) noexcept nogil:
    """Once no acceptor is left."""
    cdef AddressRate* each
    if rates == NULL:
        return
    while rates.oldest != NULL:
        each = rates.oldest
        rates.oldest = each.newer
        free(each)
    table_free(&rates.rates)
    address_limits_free(&rates.limits)
    free(rates.samples)
    pthread_mutex_destroy(&rates.lock)
    free(rates)


# --- limits ---------------------------------------------------------------------------------------

cdef inline uint32_t _hash(const uint8_t* address) noexcept nogil:
    return <uint32_t>kb_keyed_hash(_key, address, 16)


cdef uint32_t _limit_hash(const void* item) noexcept nogil:
    return _hash((<const AddressLimit*>item).address)


cdef inline int _is_limit(const void* item, const void* address) noexcept nogil:
    return memcmp((<const AddressLimit*>item).address, address, 16) == 0


cdef uint32_t _rate_hash(const void* item) noexcept nogil:
    return _hash((<const AddressRate*>item).address)


cdef inline int _is_rate(const void* item, const void* address) noexcept nogil:
    return memcmp((<const AddressRate*>item).address, address, 16) == 0


cdef int address_limit_put(
    Table* limits, const uint8_t* address, double bound
) noexcept nogil:
    cdef AddressLimit* limit = <AddressLimit*>table_find(limits, _hash(address), _is_limit, address)
    if limit == NULL:
        limit = <AddressLimit*>calloc(1, sizeof(AddressLimit))
        if limit == NULL or table_room(limits, _limit_hash) != 0:
            free(limit)
            return -1
        memcpy(limit.address, address, 16)
        table_put(limits, limit, _limit_hash(limit))
    limit.bound = bound
    return 0


cdef void address_limits_free(Table* limits) noexcept nogil:
    cdef int64_t place
    for place in range(table_places(limits)):
        free(limits.places[place])
    table_free(limits)


cdef void _note_in_force_locked(ConnectionRates* rates) noexcept nogil:
    kb_store_int(
        &rates.in_force, rates.bound >= 0 or rates.every >= 0 or rates.limits.count > 0)


cdef void connection_rates_bound(ConnectionRates* rates, double bound) noexcept nogil:
    lock_ranked(&rates.lock, RANK_QUEUE)
    rates.bound = bound
    _note_in_force_locked(rates)
    unlock_ranked(&rates.lock, RANK_QUEUE)


cdef void connection_rates_limit(
    ConnectionRates* rates, double every, Table* limits
) noexcept nogil:
    cdef Table before
    lock_ranked(&rates.lock, RANK_QUEUE)
    before = rates.limits
    rates.limits = limits[0]
    rates.every = every
    _note_in_force_locked(rates)
    unlock_ranked(&rates.lock, RANK_QUEUE)
    memset(limits, 0, sizeof(Table))
    address_limits_free(&before)


# --- connections ----------------------------------------------------------------------------------

cdef int64_t connection_rates_wait_ms(ConnectionRates* rates, int64_t now_ms) noexcept nogil:
    cdef int64_t wait_ms = 0
    lock_ranked(&rates.lock, RANK_QUEUE)
    if rates.bound >= 0:
        rate_record(&rates.all, &rates.window, 1, now_ms)
        wait_ms = rate_delay_ms(
            &rates.all, &rates.window, rates.bound, rates.window.sample_ms, now_ms)
    unlock_ranked(&rates.lock, RANK_QUEUE)
    return wait_ms


cdef void _unlink(ConnectionRates* rates, AddressRate* each) noexcept nogil:
    if each.older != NULL:
        each.older.newer = each.newer
    else:
        rates.oldest = each.newer
    if each.newer != NULL:
        each.newer.older = each.older
    else:
        rates.newest = each.older


cdef void _to_newest(ConnectionRates* rates, AddressRate* each) noexcept nogil:
    each.older = rates.newest
    each.newer = NULL
    if rates.newest != NULL:
        rates.newest.newer = each
    else:
        rates.oldest = each
    rates.newest = each


cdef AddressRate* _rate_locked(ConnectionRates* rates, const uint8_t* address) noexcept nogil:
    # The newest from here on; NULL: no memory.
    cdef AddressRate* each = <AddressRate*>table_find(
        &rates.rates, _hash(address), _is_rate, address)
    if each != NULL:
        _unlink(rates, each)
        _to_newest(rates, each)
        return each
    if rates.rates.count >= ADDRESSES_MAX:
        each = rates.oldest
        _unlink(rates, each)
        table_remove(&rates.rates, each, _rate_hash, "connection rates: an address is in the table")
        free(each)
    if table_room(&rates.rates, _rate_hash) != 0:
        return NULL
    each = <AddressRate*>calloc(
        1, sizeof(AddressRate) + sizeof(QuotaSample) * <size_t>(rates.window.samples + 1))
    if each == NULL:
        return NULL
    each.samples = <QuotaSample*>(each + 1)
    each.rate.samples = each.samples
    memcpy(each.address, address, 16)
    table_put(&rates.rates, each, _rate_hash(each))
    _to_newest(rates, each)
    return each


cdef int64_t connection_rates_refuse_ms(
    ConnectionRates* rates, const uint8_t* address, int counts, int64_t now_ms
) noexcept nogil:
    cdef AddressLimit* limit
    cdef AddressRate* each
    cdef double bound
    cdef int64_t delay_ms = 0
    lock_ranked(&rates.lock, RANK_QUEUE)
    limit = <AddressLimit*>table_find(&rates.limits, _hash(address), _is_limit, address)
    bound = limit.bound if limit != NULL else rates.every
    each = _rate_locked(rates, address) if bound >= 0 else NULL
    if each != NULL:
        rate_record(&each.rate, &rates.window, 1, now_ms)
        delay_ms = rate_delay_ms(
            &each.rate, &rates.window, bound, rates.window.sample_ms, now_ms)
        if delay_ms > 0:
            rate_record(&each.rate, &rates.window, -1, now_ms)
            if counts and rates.bound >= 0:
                rate_record(&rates.all, &rates.window, -1, now_ms)
    unlock_ranked(&rates.lock, RANK_QUEUE)
    return delay_ms
