# cython: language_level=3
"""The quotas of users and clients: which applies, and what each has used.

Which quota applies is found by Kafka's order of precedence, for each kind by itself:

    user and client id, user and every client id, user,
    every user and client id, every user and every client id, every user,
    client id, every client id

The level that matches says who shares the quota: that of a user is one for all its client ids, that
of "every user" one for each user. So a bucket has the names that the level has, and the client's
own where the level has the default. It is found once for a connection, its client id and a
generation of the limits; a request compares its client id with the last one's: a short one by
itself, a long one by its hash.

A bucket counts what was used (`_rate`). Those that no channel holds and that were not used for an
hour go. Where there are as many as are allowed, further client ids of a user share one bucket:
a client may choose any number of ids, and none of them is worth more memory.

Any thread, without the GIL; one lock, "queue" in the lock order, held for a few hundred
nanoseconds. Without a quota nothing comes here: who calls looks at `in_force` first. `now_ms` is an
argument, of a monotonic clock.
"""

from libc.math cimport isfinite
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from kbroker.core._atomics cimport kb_load_i64, kb_store_i64, kb_store_int
from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_random_key
from kbroker.core._lock_order cimport RANK_QUEUE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._require cimport require
from kbroker.core._sync cimport pthread_mutex_destroy
from kbroker.core._table cimport (
    table_find, table_free, table_places, table_put, table_remove, table_room)
from kbroker.quota._rate cimport (
    rate_measure, rate_record, rate_use, tokens_left, tokens_take)

cdef enum:
    IDLE_MS = 60 * 60 * 1000      # a bucket that is not used for so long goes, as in Kafka
    ORDER_MS = 100                # how exactly buckets are in the order of their use
    IDLE_LOOKS = 2                # for each new one so many that may have been idle go
    SHARED_MAX = 1000             # buckets of users whose further client ids share one
    LEVELS = 8

cdef QuotaName ABSENT = QuotaName(0, 0)
cdef QuotaName EVERY = QuotaName(1, 1)
cdef QuotaName FURTHER = QuotaName(2, 2)  # client ids, or users, beyond the bound


# --- names, limits, buckets -----------------------------------------------------------------------

cdef inline int _same(const QuotaName* one, const QuotaName* other) noexcept nogil:
    return one.first == other.first and one.second == other.second


cdef QuotaName quota_name(
    const QuotaTable* table, const uint8_t* text, int32_t length
) noexcept nogil:
    cdef QuotaName name
    name.first = kb_keyed_hash(table.keys[0], text, <size_t>length)
    name.second = kb_keyed_hash(table.keys[1], text, <size_t>length)
    return name


cdef inline uint32_t _mixed(
    const QuotaName* user, const QuotaName* client, int kind
) noexcept nogil:
    cdef uint64_t both = user.first * 3 + client.first * 5 + (<uint64_t>kind << 40)
    return <uint32_t>(both ^ both >> 32)


cdef uint32_t _limit_hash(const void* item) noexcept nogil:
    cdef const QuotaLimit* limit = <const QuotaLimit*>item
    return _mixed(&limit.user, &limit.client, 0)


cdef inline int _is_limit(const void* item, const void* key) noexcept nogil:
    cdef const QuotaLimit* one = <const QuotaLimit*>item
    cdef const QuotaLimit* other = <const QuotaLimit*>key
    return _same(&one.user, &other.user) and _same(&one.client, &other.client)


cdef uint32_t _bucket_hash(const void* item) noexcept nogil:
    cdef const QuotaBucket* bucket = <const QuotaBucket*>item
    return _mixed(&bucket.user, &bucket.client, bucket.kind)


cdef inline int _is_bucket(const void* item, const void* key) noexcept nogil:
    cdef const QuotaBucket* one = <const QuotaBucket*>item
    cdef const QuotaBucket* other = <const QuotaBucket*>key
    return (one.kind == other.kind and _same(&one.user, &other.user)
            and _same(&one.client, &other.client))


cdef QuotaTable* quota_table_new(
    const QuotaWindow* window, const QuotaWindow* of_mutations, int64_t buckets_max
) noexcept nogil:
    cdef QuotaTable* table = <QuotaTable*>calloc(1, sizeof(QuotaTable))
    cdef int kind
    if table != NULL:
        kb_mutex_init(&table.lock)
        for kind in range(QUOTA_KINDS):
            table.windows[kind] = of_mutations[0] if kind == QUOTA_MUTATION else window[0]
        table.buckets_max = buckets_max
        table.keys[0] = kb_random_key()
        table.keys[1] = kb_random_key()
        table.generation = 1
        table.fetch_least = INT64_MAX
    return table


cdef void quota_table_free(QuotaTable* table) noexcept nogil:
    """Once no channel is left."""
    cdef QuotaBucket* bucket
    if table == NULL:
        return
    quota_limits_free(&table.limits)
    while table.oldest != NULL:
        bucket = table.oldest
        table.oldest = bucket.newer
        free(bucket)
    table_free(&table.buckets)
    pthread_mutex_destroy(&table.lock)
    free(table)


cdef void quota_limits_free(Table* limits) noexcept nogil:
    cdef int64_t place
    for place in range(table_places(limits)):
        free(limits.places[place])
    table_free(limits)


cdef void _unlink(QuotaTable* table, QuotaBucket* bucket) noexcept nogil:
    if bucket.older != NULL:
        bucket.older.newer = bucket.newer
    else:
        table.oldest = bucket.newer
    if bucket.newer != NULL:
        bucket.newer.older = bucket.older
    else:
        table.newest = bucket.older


cdef void _to_newest(QuotaTable* table, QuotaBucket* bucket) noexcept nogil:
    bucket.older = table.newest
    bucket.newer = NULL
    if table.newest != NULL:
        table.newest.newer = bucket
    else:
        table.oldest = bucket
    table.newest = bucket


cdef void _use(QuotaTable* table, QuotaBucket* bucket, double bound, int64_t now_ms) noexcept nogil:
    # Two of one client, used by turns, keep their order for a moment.
    bucket.bound = bound
    if now_ms - bucket.last_ms < <int64_t>ORDER_MS:
        return
    bucket.last_ms = now_ms
    if table.newest != bucket:
        _unlink(table, bucket)
        _to_newest(table, bucket)


cdef void _drop_idle(QuotaTable* table, int64_t now_ms, int64_t most) noexcept nogil:
    # The oldest that are idle; one that a channel holds counts as used.
    cdef QuotaBucket* bucket
    while most > 0 and table.oldest != NULL:
        bucket = table.oldest
        if now_ms - bucket.last_ms < <int64_t>IDLE_MS:
            return
        most -= 1
        _unlink(table, bucket)
        if bucket.refs > 0:
            bucket.last_ms = now_ms
            _to_newest(table, bucket)
            continue
        table_remove(&table.buckets, bucket, _bucket_hash, "quotas: a bucket is in the table")
        free(bucket)


cdef QuotaBucket* _bucket(
    QuotaTable* table, QuotaBucket* key, const QuotaAsker* asker, int64_t now_ms
) noexcept nogil:
    # The one with this kind and these names; NULL: no memory.
    cdef QuotaBucket* found = <QuotaBucket*>table_find(
        &table.buckets, _bucket_hash(key), _is_bucket, key)
    if found != NULL:
        return found
    _drop_idle(table, now_ms, IDLE_LOOKS)
    if table.buckets.count >= table.buckets_max and not _same(&key.client, &FURTHER):
        table.shared += 1
        if not _same(&key.client, &ABSENT):
            key.client = FURTHER
            return _bucket(table, key, asker, now_ms)
    if table.buckets.count >= table.buckets_max + SHARED_MAX:
        if not _same(&key.user, &FURTHER):
            key.user = key.client = FURTHER
            return _bucket(table, key, asker, now_ms)
    return _new_bucket(table, key, asker, now_ms)


cdef QuotaBucket* _new_bucket(
    QuotaTable* table, const QuotaBucket* key, const QuotaAsker* asker, int64_t now_ms
) noexcept nogil:
    cdef size_t samples_bytes = sizeof(QuotaSample) * <size_t>(table.windows[key.kind].samples + 1)
    cdef int32_t user = -1
    cdef int32_t client = -1
    cdef QuotaBucket* made
    if not _same(&key.user, &ABSENT):
        user = min(asker.user_length, <int32_t>QUOTA_NAME_BYTES_MAX)
    if not _same(&key.client, &ABSENT) and asker.client_length >= 0:
        client = min(asker.client_length, <int32_t>QUOTA_NAME_BYTES_MAX)
    if _same(&key.user, &FURTHER):
        user = 0
    if _same(&key.client, &FURTHER):
        client = 0
    if table_room(&table.buckets, _bucket_hash) != 0:
        return NULL
    made = <QuotaBucket*>calloc(
        1, sizeof(QuotaBucket) + samples_bytes + <size_t>(max(user, 0) + max(client, 0)))
    if made == NULL:
        return NULL
    made.kind = key.kind
    made.user = key.user
    made.client = key.client
    made.last_ms = now_ms
    made.samples = <QuotaSample*>(made + 1)
    made.rate.samples = made.samples
    made.names = <uint8_t*>made.samples + samples_bytes
    made.user_length = user
    made.client_length = client
    if user > 0:
        memcpy(made.names, asker.user, <size_t>user)
    if client > 0:
        memcpy(made.names + max(user, 0), asker.client, <size_t>client)
    table_put(&table.buckets, made, _bucket_hash(made))
    _to_newest(table, made)
    return made


# --- which quota applies --------------------------------------------------------------------------

cdef void _levels(
    QuotaTable* table, const QuotaName* user, const QuotaName* client, int has_client,
    QuotaLimit** found,
) noexcept nogil:
    # The limits that may apply, the first one first; NULL: none is set there. As in Kafka an empty
    # client id has the quotas of users alone.
    cdef const QuotaName* users[LEVELS]
    cdef const QuotaName* clients[LEVELS]
    cdef QuotaLimit key
    cdef int level
    users[0] = users[1] = users[2] = user
    users[3] = users[4] = users[5] = &EVERY
    users[6] = users[7] = &ABSENT
    clients[0] = clients[3] = clients[6] = client
    clients[1] = clients[4] = clients[7] = &EVERY
    clients[2] = clients[5] = &ABSENT
    for level in range(LEVELS):
        found[level] = NULL
        if not has_client and not _same(clients[level], &ABSENT):
            continue
        key.user = users[level][0]
        key.client = clients[level][0]
        found[level] = <QuotaLimit*>table_find(
            &table.limits, _limit_hash(&key), _is_limit, &key)


cdef void _let_go(QuotaClient* client) noexcept nogil:
    cdef int kind
    for kind in range(QUOTA_KINDS):
        if client.buckets[kind] != NULL:
            client.buckets[kind].refs -= 1
            require(client.buckets[kind].refs >= 0, "quotas: a bucket is held by channels",
                    client.buckets[kind].refs, 0)
            client.buckets[kind] = NULL


cdef void _resolve(
    QuotaTable* table, QuotaClient* client, const QuotaAsker* asker, int64_t now_ms
) noexcept nogil:
    # The client's session and client id are set, and it holds no buckets.
    cdef QuotaName user = quota_name(table, asker.user, asker.user_length)
    cdef QuotaLimit* found[LEVELS]
    cdef QuotaBucket key
    cdef int kind
    cdef int level
    memset(&key, 0, sizeof(key))
    _levels(table, &user, &client.client, client.has_client, found)
    for kind in range(QUOTA_KINDS):
        client.bounds[kind] = -1
        for level in range(LEVELS):
            if found[level] == NULL or not found[level].bounds[kind] >= 0:
                continue
            key.kind = kind
            key.user = user if level < 6 else ABSENT
            key.client = ABSENT if level == 2 or level == 5 else client.client
            client.buckets[kind] = _bucket(table, &key, asker, now_ms)
            if client.buckets[kind] != NULL:
                client.buckets[kind].refs += 1
                client.bounds[kind] = found[level].bounds[kind]
            break
    client.generation = table.generation


cdef inline int _is_the_last(const QuotaClient* client, const QuotaAsker* asker) noexcept nogil:
    # Its client id is the one that the channel had last.
    if asker.client_length == LAST_CLIENT_ID:
        return 1
    if client.text_length != max(asker.client_length, 0):
        return 0
    return client.text_length == 0 or memcmp(
        client.text, asker.client, <size_t>client.text_length) == 0


cdef void _name(
    const QuotaTable* table, QuotaClient* client, const QuotaAsker* asker
) noexcept nogil:
    # The client id, of which the last one's buckets may be.
    cdef int32_t length = max(asker.client_length, 0)
    client.client = quota_name(table, asker.client, length)
    client.has_client = length > 0
    client.text_length = length if length <= <int32_t>QUOTA_TEXT_BYTES_MAX else -1
    if client.text_length > 0:
        memcpy(client.text, asker.client, <size_t>length)


cdef QuotaClient* _client(
    QuotaTable* table, const QuotaAsker* asker, QuotaClient* own, int64_t now_ms
) noexcept nogil:
    # Of the channel, or `own` where there is none. NULL: no memory.
    cdef QuotaClient* client = own
    cdef QuotaName last
    cdef int is_last
    if asker.held == NULL:
        memset(own, 0, sizeof(QuotaClient))
    else:
        client = <QuotaClient*>asker.held[0]
        if client == NULL:
            client = <QuotaClient*>calloc(1, sizeof(QuotaClient))
            if client == NULL:
                return NULL
            asker.held[0] = client
    is_last = _is_the_last(client, asker)
    if is_last and client.generation == table.generation and client.session == asker.session:
        return client
    last = client.client
    if not is_last:
        _name(table, client, asker)
    if (client.generation == table.generation and client.session == asker.session
            and _same(&client.client, &last)):
        return client
    _let_go(client)
    client.session = asker.session
    _resolve(table, client, asker, now_ms)
    return client


cdef void quota_client_free(QuotaTable* table, void* held) noexcept nogil:
    if held == NULL:
        return
    lock_ranked(&table.lock, RANK_QUEUE)
    _let_go(<QuotaClient*>held)
    unlock_ranked(&table.lock, RANK_QUEUE)
    free(held)


# --- charges --------------------------------------------------------------------------------------

cdef int64_t _record(
    QuotaTable* table, QuotaClient* client, int kind, double value, int64_t most_ms, int64_t now_ms
) noexcept nogil:
    # The delay.
    cdef QuotaBucket* bucket = client.buckets[kind]
    cdef int64_t delay_ms
    if bucket == NULL:
        return 0
    _use(table, bucket, client.bounds[kind], now_ms)
    delay_ms = rate_use(
        &bucket.rate, &table.windows[kind], value, client.bounds[kind], most_ms, now_ms)
    if delay_ms > 0:
        bucket.throttles += 1
        bucket.throttle_ms += delay_ms
    return delay_ms


cdef int32_t quota_charge(
    QuotaTable* table, const QuotaAsker* asker, const QuotaCharge* charge, int64_t now_ms,
) noexcept nogil:
    cdef QuotaClient own
    cdef QuotaClient* client
    cdef int64_t delay_ms = 0
    lock_ranked(&table.lock, RANK_QUEUE)
    client = _client(table, asker, &own, now_ms)
    if client != NULL:
        if charge.percent >= 0:
            delay_ms = _record(
                table, client, QUOTA_REQUEST, charge.percent,
                table.windows[QUOTA_REQUEST].sample_ms, now_ms)
        if charge.kind != NO_QUOTA:
            delay_ms = max(delay_ms, _record(
                table, client, charge.kind, charge.bytes, INT32_MAX, now_ms))
            if charge.takes_back and delay_ms > 0 and client.buckets[<int>charge.kind] != NULL:
                rate_record(&client.buckets[<int>charge.kind].rate,
                            &table.windows[<int>charge.kind], -charge.bytes, now_ms)
        if client == &own:
            _let_go(client)
    unlock_ranked(&table.lock, RANK_QUEUE)
    return <int32_t>delay_ms


cdef int64_t quota_fetch_most(
    QuotaTable* table, const QuotaAsker* asker, int64_t now_ms
) noexcept nogil:
    cdef QuotaClient own
    cdef QuotaClient* client
    cdef int64_t most = INT64_MAX
    lock_ranked(&table.lock, RANK_QUEUE)
    client = _client(table, asker, &own, now_ms)
    if client != NULL and client.bounds[QUOTA_FETCH] >= 0:
        most = _window_bytes(table, client.bounds[QUOTA_FETCH])
    if client == &own:
        _let_go(client)
    unlock_ranked(&table.lock, RANK_QUEUE)
    return most


cdef int quota_bounds_fetch(QuotaTable* table, int64_t size_bytes) noexcept nogil:
    return kb_load_i64(&table.fetch_least) < size_bytes


cdef int quota_mutate(
    QuotaTable* table, const QuotaAsker* asker, double count, int strict, int64_t now_ms,
    int32_t* throttle_ms,
) noexcept nogil:
    cdef QuotaClient own
    cdef QuotaClient* client
    cdef const QuotaWindow* window = &table.windows[QUOTA_MUTATION]
    cdef QuotaBucket* bucket
    cdef double bound
    cdef double left = 0
    cdef double delay_ms
    cdef int refused = 0
    throttle_ms[0] = 0
    lock_ranked(&table.lock, RANK_QUEUE)
    client = _client(table, asker, &own, now_ms)
    bucket = client.buckets[QUOTA_MUTATION] if client != NULL else NULL
    if bucket != NULL:
        bound = client.bounds[QUOTA_MUTATION]
        _use(table, bucket, bound, now_ms)
        left = tokens_left(&bucket.tokens, window, bound, now_ms)
        refused = strict and left < 0
        if not refused:
            tokens_take(&bucket.tokens, window, bound, count, now_ms)
            rate_record(&bucket.rate, window, count, now_ms)
            left = bucket.tokens.tokens
        if left < 0 and (refused or not strict):
            delay_ms = -left / bound * 1000 + 0.5
            throttle_ms[0] = INT32_MAX
            if isfinite(delay_ms) and delay_ms < <double>INT32_MAX:
                throttle_ms[0] = <int32_t>delay_ms
            bucket.throttles += 1
            bucket.throttle_ms += throttle_ms[0]
    if client == &own:
        _let_go(client)
    unlock_ranked(&table.lock, RANK_QUEUE)
    return -1 if refused else 0


# --- from Python ----------------------------------------------------------------------------------

cdef int quota_limit_put(Table* limits, const QuotaLimit* limit) noexcept nogil:
    cdef QuotaLimit* made = <QuotaLimit*>calloc(1, sizeof(QuotaLimit))
    if made == NULL or table_room(limits, _limit_hash) != 0:
        free(made)
        return -1
    made[0] = limit[0]
    table_put(limits, made, _limit_hash(made))
    return 0


cdef int64_t _window_bytes(const QuotaTable* table, double bound) noexcept nogil:
    # The most that one answer to a fetch may have.
    cdef const QuotaWindow* window = &table.windows[QUOTA_FETCH]
    cdef double most = bound * <double>(window.samples - 1) * <double>window.sample_ms / 1000
    return <int64_t>most if 0 <= most < 9e18 else INT64_MAX


cdef int64_t _least_window_bytes(const QuotaTable* table, const Table* limits) noexcept nogil:
    # Of all that have a bound.
    cdef const QuotaLimit* limit
    cdef int64_t least = INT64_MAX
    cdef int64_t place
    for place in range(table_places(limits)):
        limit = <const QuotaLimit*>limits.places[place]
        if limit != NULL and limit.bounds[QUOTA_FETCH] >= 0:
            least = min(least, _window_bytes(table, limit.bounds[QUOTA_FETCH]))
    return least


cdef void quota_table_limit(QuotaTable* table, Table* limits, int in_force) noexcept nogil:
    cdef Table before
    cdef int64_t least = _least_window_bytes(table, limits)
    lock_ranked(&table.lock, RANK_QUEUE)
    before = table.limits
    table.limits = limits[0]
    table.generation += 1
    kb_store_i64(&table.fetch_least, least)
    kb_store_int(&table.in_force, in_force)
    unlock_ranked(&table.lock, RANK_QUEUE)
    quota_limits_free(&before)


cdef void _note_figure(
    QuotaTable* table, QuotaBucket* bucket, int64_t now_ms, QuotaFigure* figure
) noexcept nogil:
    cdef const QuotaWindow* window = &table.windows[bucket.kind]
    figure.kind = bucket.kind
    figure.bound = bucket.bound
    figure.rate = rate_measure(&bucket.rate, window, now_ms)
    figure.tokens = bucket.tokens.tokens
    if bucket.kind == QUOTA_MUTATION:
        figure.tokens = tokens_left(&bucket.tokens, window, bucket.bound, now_ms)
    figure.throttles = bucket.throttles
    figure.throttle_ms = bucket.throttle_ms
    figure.user_length = bucket.user_length
    figure.client_length = bucket.client_length
    memcpy(figure.names, bucket.names,
           <size_t>(max(bucket.user_length, 0) + max(bucket.client_length, 0)))


cdef int64_t quota_figures(
    QuotaTable* table, QuotaFigure* figures, int64_t most, int64_t now_ms
) noexcept nogil:
    cdef QuotaBucket* bucket
    cdef int64_t at = 0
    lock_ranked(&table.lock, RANK_QUEUE)
    _drop_idle(table, now_ms, INT64_MAX)
    bucket = table.newest
    while bucket != NULL and at < most:
        _note_figure(table, bucket, now_ms, &figures[at])
        at += 1
        bucket = bucket.older
    unlock_ranked(&table.lock, RANK_QUEUE)
    return at
