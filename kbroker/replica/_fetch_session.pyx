# cython: language_level=3
"""Incremental fetch sessions (KIP-227): the partitions of a client, which it need not name again.

A session holds the partitions of one client in the order in which they are served, with the last
answer to the client about each. The cache finds sessions by id, keeps them in the order of their
last use and is bounded by slots and by bytes: when it is full, sessions that have been idle for the
eviction time are evicted, the least recently used first, or else the new client is served without a
session, as by Apache Kafka. Any client's session is evicted for a follower's, and no client's takes
the place of a follower's that is in use. A session that grows beyond its bound, or the cache's,
ends: its client gets the error of an unknown session, fetches in full and is served as a new
client.

Locks: the cache's ("table") for finding, creating, closing; a session's own ("session") for its
partitions. A session found is held by a reference; one that was closed meanwhile is freed by the
last holder, outside the locks. Memory: some 140 bytes a partition, and its name below version 13;
SESSION_PARTITIONS_MAX for one client, SESSIONS_BYTES_MAX for all, counted as it is taken and given
back. Tables double, and are keyed: who names partitions does not choose their places.
Everything is `noexcept nogil`; NULL means no memory or no room.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.core._atomics cimport kb_add_i64, kb_load_i64
from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_keyed_number, kb_random_key
from kbroker.core._limits cimport (
    SESSION_PARTITIONS_MAX, SESSIONS_BYTES_MAX, TOPIC_NAME_CHARS_MAX)
from kbroker.core._list cimport linked_append, linked_remove
from kbroker.core._live_objects cimport LIVE_FETCH_SESSIONS, LIVE_SESSION_PARTITIONS, live_add
from kbroker.core._lock_order cimport RANK_TABLE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._require cimport require
from kbroker.core._sync cimport kb_now_ns, pthread_mutex_destroy
from kbroker.core._table cimport (
    TABLE_PLACES_MIN, table_bytes, table_find, table_free, table_init, table_is_full, table_put,
    table_remove, table_resize, table_room)


cdef SessionCache* sessions_new(int32_t slots_max, int64_t eviction_ms_min) noexcept nogil:
    cdef SessionCache* cache = <SessionCache*>calloc(1, sizeof(SessionCache))
    if cache == NULL:
        return NULL
    kb_mutex_init(&cache.lock)
    cache.slots_max = slots_max
    cache.eviction_ns_min = eviction_ms_min * 1000000
    # Ids need no secrecy (a session carries no rights), only to differ between restarts.
    cache.seed = <uint64_t>kb_now_ns() | 1
    cache.hash_key = kb_random_key()
    return cache


cdef void sessions_free(SessionCache* cache) noexcept nogil:
    """When no session is in use any more."""
    if cache == NULL:
        return
    while cache.oldest != NULL:
        _free(_unlink_locked(cache, cache.oldest))
    pthread_mutex_destroy(&cache.lock)
    table_free(&cache.by_id)
    free(cache)


# --- the cache -----------------------------------------------------------------------------------

cdef inline int _has_session_id(const void* item, const void* key) noexcept nogil:
    return (<const FetchSession*>item).session_id == (<const int32_t*>key)[0]


cdef inline uint32_t _hash_of_id(const SessionCache* cache, int32_t session_id) noexcept nogil:
    # Keyed: a client knows the ids that it got, and may end the sessions whose ids differ too much.
    return <uint32_t>kb_keyed_number(cache.hash_key, 0, <uint32_t>session_id)


cdef inline uint32_t _session_hash(const void* item) noexcept nogil:
    cdef const FetchSession* session = <const FetchSession*>item
    return _hash_of_id(session.cache, session.session_id)


cdef FetchSession* _lookup_locked(SessionCache* cache, int32_t session_id) noexcept nogil:
    return <FetchSession*>table_find(
        &cache.by_id, _hash_of_id(cache, session_id), _has_session_id, &session_id)


cdef int32_t _new_id_locked(SessionCache* cache) noexcept nogil:
    # A positive id that is not in use (xorshift).
    cdef int32_t session_id
    while True:
        cache.seed ^= cache.seed << 13
        cache.seed ^= cache.seed >> 7
        cache.seed ^= cache.seed << 17
        session_id = <int32_t>(cache.seed & 0x7fffffff)
        if session_id > 0 and _lookup_locked(cache, session_id) == NULL:
            return session_id


cdef void _link_newest_locked(SessionCache* cache, FetchSession* session) noexcept nogil:
    linked_append(&cache.oldest, &cache.newest, session, &session.older,
                  "fetch sessions: nothing is after the newest")


cdef void _unlink_age_locked(SessionCache* cache, FetchSession* session) noexcept nogil:
    linked_remove(&cache.oldest, &cache.newest, session, &session.older,
                  "fetch sessions: neighbours by age name each other")


cdef FetchSession* _unlink_locked(SessionCache* cache, FetchSession* session) noexcept nogil:
    # Out of the cache. A session that is returned is to be freed by the caller; NULL: by its last
    # holder.
    table_remove(&cache.by_id, session, _session_hash, "fetch sessions: one that ends is known")
    if cache.by_id.count == 0:
        kb_add_i64(&cache.bytes, -table_bytes(&cache.by_id))
        table_free(&cache.by_id)
    _unlink_age_locked(cache, session)
    session.closed = 1
    return _drop_locked(session)


cdef int _index_room_locked(SessionCache* cache) noexcept nogil:
    # Of one more; -1: no memory.
    cdef int64_t before_bytes = table_bytes(&cache.by_id)
    if table_room(&cache.by_id, _session_hash) != 0:
        return -1
    kb_add_i64(&cache.bytes, table_bytes(&cache.by_id) - before_bytes)
    return 0


cdef FetchSession* _drop_locked(FetchSession* session) noexcept nogil:
    session.refs -= 1
    require(session.refs >= 0, "fetch session: references are dropped once", session.refs, 0)
    return session if session.refs == 0 else NULL


cdef void _free(FetchSession* session) noexcept nogil:
    # It is in no list any more; outside the locks, for it may be large. NULL is allowed.
    cdef SessionPartition* entry
    if session == NULL:
        return
    while session.first != NULL:
        entry = session.first
        session.first = entry.next
        free(entry)
    kb_add_i64(&session.cache.partitions, -<int64_t>session.followed.count)
    live_add(LIVE_SESSION_PARTITIONS, -<int64_t>session.followed.count)
    live_add(LIVE_FETCH_SESSIONS, -1)
    kb_add_i64(&session.cache.bytes, -session.size_bytes)
    table_free(&session.followed)
    pthread_mutex_destroy(&session.lock)
    free(session)


cdef int _charge(FetchSession* session, int64_t size_bytes) noexcept nogil:
    # -1: there is no room for so much more.
    if kb_add_i64(&session.cache.bytes, size_bytes) > SESSIONS_BYTES_MAX and size_bytes > 0:
        kb_add_i64(&session.cache.bytes, -size_bytes)
        return -1
    session.size_bytes += size_bytes
    return 0


cdef FetchSession* _new(SessionCache* cache, int by_id, int privileged) noexcept nogil:
    # In no list yet.
    cdef FetchSession* session = <FetchSession*>calloc(1, sizeof(FetchSession))
    if session == NULL:
        return NULL
    live_add(LIVE_FETCH_SESSIONS, 1)
    session.cache = cache
    kb_mutex_init(&session.lock)
    if table_init(&session.followed, NULL, 0) != 0 or _charge(
        session, <int64_t>sizeof(FetchSession) + table_bytes(&session.followed)
    ) != 0:
        _free(session)
        return NULL
    session.refs = 2
    session.by_id = by_id
    session.privileged = privileged
    session.epoch = 1
    session.created_ns = kb_now_ns()
    session.last_used_ns = session.created_ns
    return session


cdef FetchSession* _evictable_locked(
    SessionCache* cache, int privileged, int64_t now_ns,
) noexcept nogil:
    # The least recently used, if it has been idle for long enough to give way; to a follower the
    # least recently used of a client. Few are followers': they are not looked through for long.
    cdef FetchSession* session = cache.oldest
    if session == NULL or now_ns - session.last_used_ns >= cache.eviction_ns_min:
        return session
    if not privileged:
        return NULL
    while session != NULL and session.privileged:
        session = session.newer
    return session


cdef void _make_room(SessionCache* cache, int privileged, int64_t size_bytes) noexcept nogil:
    # Evicts sessions until a slot and so many bytes are free, or none may be evicted any more.
    cdef FetchSession* evicted
    cdef FetchSession* unlinked
    cdef int64_t now_ns = kb_now_ns()
    while True:
        lock_ranked(&cache.lock, RANK_TABLE)
        evicted = NULL
        unlinked = NULL
        if (
            <int32_t>cache.by_id.count >= cache.slots_max
            or kb_load_i64(&cache.bytes) + size_bytes > SESSIONS_BYTES_MAX
        ):
            evicted = _evictable_locked(cache, privileged, now_ns)
        if evicted != NULL:
            cache.evictions += 1
            unlinked = _unlink_locked(cache, evicted)
        unlock_ranked(&cache.lock, RANK_TABLE)
        _free(unlinked)
        if evicted == NULL:
            return


cdef int64_t session_bytes(uint32_t partitions, int64_t names_bytes) noexcept nogil:
    """About what a session of so many partitions takes."""
    return <int64_t>sizeof(FetchSession) + names_bytes + <int64_t>partitions * <int64_t>(
        sizeof(SessionPartition) + 2 * sizeof(SessionPartition*))


cdef FetchSession* session_create(
    SessionCache* cache, int by_id, int privileged, int64_t size_bytes,
) noexcept nogil:
    """A new, empty session with a reference for the caller; NULL: the cache is full of busy ones.

    `size_bytes`: what it is going to take (session_bytes), for which others give way.
    """
    cdef FetchSession* session
    cdef int full
    _make_room(cache, privileged, size_bytes)
    session = _new(cache, by_id, privileged)
    if session == NULL:
        return NULL
    lock_ranked(&cache.lock, RANK_TABLE)
    full = (<int32_t>cache.by_id.count >= cache.slots_max
            or kb_load_i64(&cache.bytes) + size_bytes > SESSIONS_BYTES_MAX
            or _index_room_locked(cache) != 0)
    if not full:
        session.session_id = _new_id_locked(cache)
        table_put(&cache.by_id, session, _session_hash(session))
        _link_newest_locked(cache, session)
    unlock_ranked(&cache.lock, RANK_TABLE)
    if full:
        _free(session)
        return NULL
    return session


cdef FetchSession* session_find(SessionCache* cache, int32_t session_id) noexcept nogil:
    """With a reference, and now the most recently used; NULL: unknown or evicted."""
    cdef FetchSession* session
    lock_ranked(&cache.lock, RANK_TABLE)
    session = _lookup_locked(cache, session_id)
    if session != NULL:
        require(session.refs > 0, "fetch session: one that is found is held", session.refs, 1)
        session.refs += 1
        session.last_used_ns = kb_now_ns()
        _unlink_age_locked(cache, session)
        _link_newest_locked(cache, session)
    unlock_ranked(&cache.lock, RANK_TABLE)
    return session


cdef void session_close(SessionCache* cache, int32_t session_id) noexcept nogil:
    cdef FetchSession* session
    lock_ranked(&cache.lock, RANK_TABLE)
    session = _lookup_locked(cache, session_id)
    if session != NULL:
        session = _unlink_locked(cache, session)
    unlock_ranked(&cache.lock, RANK_TABLE)
    _free(session)


cdef void session_release(SessionCache* cache, FetchSession* session) noexcept nogil:
    if session == NULL:
        return
    lock_ranked(&cache.lock, RANK_TABLE)
    session = _drop_locked(session)
    unlock_ranked(&cache.lock, RANK_TABLE)
    _free(session)


# --- one session's partitions --------------------------------------------------------------------

cdef struct PartitionKey:
    const uint8_t* topic_id
    const uint8_t* name           # NULL: by id
    int32_t name_length
    int32_t index
    uint32_t hash


cdef inline PartitionKey _key_of(
    FetchSession* session, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index,
) noexcept nogil:
    cdef uint64_t seed = session.cache.hash_key
    cdef uint64_t topic
    cdef PartitionKey key
    key.topic_id = topic_id
    key.name = name
    key.name_length = name_length
    key.index = index
    if name != NULL:
        topic = kb_keyed_hash(seed, name, <size_t>name_length)
    else:
        topic = kb_keyed_hash(seed, topic_id, 16)
    key.hash = <uint32_t>kb_keyed_number(seed, topic, <uint32_t>index)
    return key


cdef inline uint32_t _hash_of(const void* item) noexcept nogil:
    return (<const SessionPartition*>item).hash


cdef inline int _is_same(const void* item, const void* wanted) noexcept nogil:
    cdef const SessionPartition* entry = <const SessionPartition*>item
    cdef const PartitionKey* key = <const PartitionKey*>wanted
    if entry.hash != key.hash or entry.index != key.index:
        return 0
    if key.name != NULL:
        return (entry.name_length == key.name_length
                and memcmp(entry.name, key.name, <size_t>key.name_length) == 0)
    return memcmp(entry.topic_id, key.topic_id, 16) == 0


cdef inline SessionPartition* _find_locked(
    FetchSession* session, const PartitionKey* key
) noexcept nogil:
    return <SessionPartition*>table_find(&session.followed, key.hash, _is_same, key)


cdef SessionPartition* session_partition_locked(
    FetchSession* session, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index,
) noexcept nogil:
    """The entry of a partition, by id (name NULL) or by name; NULL: it is not followed."""
    cdef PartitionKey key = _key_of(session, topic_id, name, name_length, index)
    return _find_locked(session, &key)


cdef SessionPartition* session_follow_locked(
    FetchSession* session, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index, int* full,
) noexcept nogil:
    """The entry of a partition, a new one at the end if there was none.

    NULL with `full` set: it is one more than fits, or there is no memory. NULL without: a name
    longer than any topic's is not followed, since one request could name it once for a hundred
    thousand partitions.
    """
    cdef PartitionKey key = _key_of(session, topic_id, name, name_length, index)
    cdef SessionPartition* entry = _find_locked(session, &key)
    cdef size_t size_bytes
    if entry != NULL or name_length > TOPIC_NAME_CHARS_MAX:
        return entry
    if name == NULL:
        name_length = 0
    size_bytes = sizeof(SessionPartition) + <size_t>name_length
    if (
        session.followed.count == SESSION_PARTITIONS_MAX
        or (table_is_full(&session.followed)
            and _resize_locked(session, 2 * (session.followed.mask + 1)) != 0)
        or _charge(session, <int64_t>size_bytes) != 0
    ):
        full[0] = 1
        return NULL
    entry = <SessionPartition*>calloc(1, size_bytes)
    if entry == NULL:
        _charge(session, -<int64_t>size_bytes)
        full[0] = 1
        return NULL
    entry.hash = key.hash
    entry.index = index
    entry.leader_epoch = -1
    entry.fetched_epoch = -1
    entry.sent_high_watermark = -1
    entry.sent_log_start = -1
    if name != NULL:
        entry.name = <uint8_t*>entry + sizeof(SessionPartition)
        memcpy(entry.name, name, <size_t>name_length)
        entry.name_length = name_length
    else:
        memcpy(entry.topic_id, topic_id, 16)
    table_put(&session.followed, entry, key.hash)
    _append_locked(session, entry)
    kb_add_i64(&session.cache.partitions, 1)
    live_add(LIVE_SESSION_PARTITIONS, 1)
    return entry


cdef int _resize_locked(FetchSession* session, uint32_t places) noexcept nogil:
    # -1: there is no memory, or no room, for such a table.
    cdef int64_t more_bytes = places * <int64_t>sizeof(void*) - table_bytes(&session.followed)
    if _charge(session, more_bytes) != 0:
        return -1
    if table_resize(&session.followed, places, _hash_of) != 0:
        _charge(session, -more_bytes)
        return -1
    return 0


cdef void _append_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    linked_append(&session.first, &session.last, entry, &entry.previous,
                  "session's partitions: nothing is after the last")


cdef void _remove_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    linked_remove(&session.first, &session.last, entry, &entry.previous,
                  "session's partitions: neighbours name each other")


cdef void session_forget_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    table_remove(&session.followed, entry, _hash_of, "session's partitions: one that goes is known")
    _remove_locked(session, entry)
    session_note_missing_locked(session, entry, 0)
    kb_add_i64(&session.cache.partitions, -1)
    live_add(LIVE_SESSION_PARTITIONS, -1)
    _charge(session, -<int64_t>(sizeof(SessionPartition) + <size_t>entry.name_length))
    free(entry)
    if (session.followed.mask >= TABLE_PLACES_MIN
            and session.followed.count < (session.followed.mask + 1) // 8):
        _resize_locked(session, (session.followed.mask + 1) // 2)


cdef void session_to_tail_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    """What returned data goes last, or the first busy partition starves the others."""
    if session.last != entry:
        _remove_locked(session, entry)
        _append_locked(session, entry)


cdef void session_note_missing_locked(
    FetchSession* session, SessionPartition* entry, int missing
) noexcept nogil:
    """Whether the client knows by now that there is no such partition here."""
    if entry.missing != missing:
        session.missing += 1 if missing else -1
        entry.missing = <uint8_t>missing


cdef int32_t session_next_epoch(int32_t epoch) noexcept nogil:
    return 1 if epoch == 0x7fffffff else epoch + 1
