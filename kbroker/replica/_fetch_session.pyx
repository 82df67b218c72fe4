# cython: language_level=3
"""Incremental fetch sessions (KIP-227): what a consumer follows, so that it need not say it again.

A session holds the partitions of one client in the order in which they are served, with what the
client was last told about each. The cache finds sessions by id, keeps them in the order of their
last use and is bounded by slots: when it is full, the least recently used session that has been
idle for the eviction time gives way, or else the new client is served without a session.

Locks: the cache's ("table") for finding, creating, closing; a session's own ("session") for its
partitions. A session found is held by a reference; one that was closed meanwhile is freed by the
last holder. Memory: about 120 bytes a partition; the number of partitions is bounded by the request
that named them. Everything is `noexcept nogil`; NULL means no memory or no room.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker._live_objects cimport LIVE_FETCH_SESSIONS, LIVE_SESSION_PARTITIONS, live_add
from kbroker._lock_order cimport RANK_TABLE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker._sync cimport kb_now_ns, pthread_mutex_destroy

cdef enum:
    TOPIC_NAME_BYTES_MAX = 249
    SESSION_PARTITIONS_MAX = 100000  # what one client may follow; more is not taken in


cdef SessionCache* sessions_new(int32_t slots_max, int64_t eviction_ms_min) noexcept nogil:
    cdef SessionCache* cache = <SessionCache*>calloc(1, sizeof(SessionCache))
    if cache == NULL:
        return NULL
    kb_mutex_init(&cache.lock)
    cache.slots_max = slots_max
    cache.eviction_ns_min = eviction_ms_min * 1000000
    # Ids need no secrecy (a session carries no rights), only to differ between restarts.
    cache.seed = <uint64_t>kb_now_ns() | 1
    return cache


cdef void sessions_free(SessionCache* cache) noexcept nogil:
    """When nobody holds a session any more."""
    if cache == NULL:
        return
    while cache.oldest != NULL:
        _unlink_locked(cache, cache.oldest)
    pthread_mutex_destroy(&cache.lock)
    free(cache)


# --- the cache -----------------------------------------------------------------------------------

cdef FetchSession* _lookup_locked(SessionCache* cache, int32_t session_id) noexcept nogil:
    cdef FetchSession* session = cache.buckets[<uint32_t>session_id % SESSION_BUCKETS]
    while session != NULL and session.session_id != session_id:
        session = session.next_hashed
    return session


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
    session.older = cache.newest
    session.newer = NULL
    if cache.newest != NULL:
        cache.newest.newer = session
    else:
        cache.oldest = session
    cache.newest = session


cdef void _unlink_age_locked(SessionCache* cache, FetchSession* session) noexcept nogil:
    if session.older != NULL:
        session.older.newer = session.newer
    else:
        cache.oldest = session.newer
    if session.newer != NULL:
        session.newer.older = session.older
    else:
        cache.newest = session.older


cdef void _unlink_locked(SessionCache* cache, FetchSession* session) noexcept nogil:
    # Out of the cache; freed now or by its last holder.
    cdef FetchSession** place = &cache.buckets[<uint32_t>session.session_id % SESSION_BUCKETS]
    while place[0] != session:
        place = &place[0].next_hashed
    place[0] = session.next_hashed
    _unlink_age_locked(cache, session)
    cache.count -= 1
    session.closed = 1
    _drop_locked(cache, session)


cdef void _drop_locked(SessionCache* cache, FetchSession* session) noexcept nogil:
    cdef SessionPartition* entry
    session.refs -= 1
    if session.refs > 0:
        return
    while session.first != NULL:
        entry = session.first
        session.first = entry.next
        free(entry)
    free(session.hashed)
    live_add(LIVE_SESSION_PARTITIONS, -<int64_t>session.count)
    live_add(LIVE_FETCH_SESSIONS, -1)
    pthread_mutex_destroy(&session.lock)
    free(session)


cdef FetchSession* session_create(
    SessionCache* cache, int by_id, uint32_t partitions,
) noexcept nogil:
    """A new session with a reference for the caller; NULL: the cache is full of busy ones."""
    cdef FetchSession* session
    cdef int64_t now_ns = kb_now_ns()
    cdef uint32_t buckets = 8
    while buckets < partitions:
        buckets *= 2
    lock_ranked(&cache.lock, RANK_TABLE)
    if cache.count >= cache.slots_max:
        if cache.oldest == NULL or now_ns - cache.oldest.last_used_ns < cache.eviction_ns_min:
            unlock_ranked(&cache.lock, RANK_TABLE)
            return NULL
        cache.evictions += 1
        _unlink_locked(cache, cache.oldest)
    session = <FetchSession*>calloc(1, sizeof(FetchSession))
    if session != NULL:
        session.hashed = <SessionPartition**>calloc(buckets, sizeof(SessionPartition*))
    if session == NULL or session.hashed == NULL:
        free(session)
        unlock_ranked(&cache.lock, RANK_TABLE)
        return NULL
    kb_mutex_init(&session.lock)
    session.refs = 2
    session.buckets = buckets
    session.by_id = by_id
    session.epoch = 1
    session.created_ns = now_ns
    session.last_used_ns = now_ns
    session.session_id = _new_id_locked(cache)
    session.next_hashed = cache.buckets[<uint32_t>session.session_id % SESSION_BUCKETS]
    cache.buckets[<uint32_t>session.session_id % SESSION_BUCKETS] = session
    _link_newest_locked(cache, session)
    cache.count += 1
    live_add(LIVE_FETCH_SESSIONS, 1)
    unlock_ranked(&cache.lock, RANK_TABLE)
    return session


cdef FetchSession* session_find(SessionCache* cache, int32_t session_id) noexcept nogil:
    """With a reference, and now the most recently used; NULL: unknown or evicted."""
    cdef FetchSession* session
    lock_ranked(&cache.lock, RANK_TABLE)
    session = _lookup_locked(cache, session_id)
    if session != NULL:
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
        _unlink_locked(cache, session)
    unlock_ranked(&cache.lock, RANK_TABLE)


cdef void session_release(SessionCache* cache, FetchSession* session) noexcept nogil:
    if session == NULL:
        return
    lock_ranked(&cache.lock, RANK_TABLE)
    _drop_locked(cache, session)
    unlock_ranked(&cache.lock, RANK_TABLE)


# --- one session's partitions --------------------------------------------------------------------

cdef uint32_t _partition_hash(
    const uint8_t* topic_id, const uint8_t* name, int32_t name_length, int32_t index,
) noexcept nogil:
    cdef uint32_t mixed = 2166136261u ^ <uint32_t>index
    cdef int32_t i
    if name != NULL:
        for i in range(name_length):
            mixed = (mixed ^ name[i]) * 16777619u
    else:
        for i in range(16):
            mixed = (mixed ^ topic_id[i]) * 16777619u
    return mixed


cdef int _same(
    SessionPartition* entry, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index,
) noexcept nogil:
    if entry.index != index:
        return 0
    if name != NULL:
        return (entry.name_length == name_length
                and memcmp(entry.name, name, <size_t>name_length) == 0)
    return memcmp(entry.topic_id, topic_id, 16) == 0


cdef SessionPartition* session_partition_locked(
    FetchSession* session, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index, int create,
) noexcept nogil:
    """The entry of a partition, by id (name NULL) or by name; new ones go to the end.

    NULL: there is none, no memory, or a name longer than any topic's, which is not followed: a
    hostile request could name it once for a hundred thousand partitions.
    """
    cdef uint32_t bucket = _partition_hash(topic_id, name, name_length, index) % session.buckets
    cdef SessionPartition* entry = session.hashed[bucket]
    while entry != NULL and not _same(entry, topic_id, name, name_length, index):
        entry = entry.next_hashed
    if entry != NULL or not create or name_length > TOPIC_NAME_BYTES_MAX:
        return entry
    if name == NULL:
        name_length = 0
    entry = <SessionPartition*>calloc(1, sizeof(SessionPartition) + <size_t>name_length)
    if entry == NULL:
        return NULL
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
    entry.next_hashed = session.hashed[bucket]
    session.hashed[bucket] = entry
    _append_locked(session, entry)
    session.count += 1
    live_add(LIVE_SESSION_PARTITIONS, 1)
    return entry


cdef void _rehash_locked(FetchSession* session) noexcept nogil:
    # Four times the buckets; without memory the chains stay long.
    cdef uint32_t buckets = 4 * session.buckets
    cdef SessionPartition** hashed = <SessionPartition**>calloc(buckets, sizeof(SessionPartition*))
    cdef SessionPartition* entry = session.first
    cdef uint32_t bucket
    if hashed == NULL:
        return
    while entry != NULL:
        bucket = _partition_hash(
            entry.topic_id, entry.name, entry.name_length, entry.index) % buckets
        entry.next_hashed = hashed[bucket]
        hashed[bucket] = entry
        entry = entry.next
    free(session.hashed)
    session.hashed = hashed
    session.buckets = buckets


cdef void _append_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    entry.previous = session.last
    entry.next = NULL
    if session.last != NULL:
        session.last.next = entry
    else:
        session.first = entry
    session.last = entry


cdef void _remove_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    if entry.previous != NULL:
        entry.previous.next = entry.next
    else:
        session.first = entry.next
    if entry.next != NULL:
        entry.next.previous = entry.previous
    else:
        session.last = entry.previous


cdef void session_forget_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    cdef SessionPartition** place
    place = &session.hashed[_partition_hash(
        entry.topic_id, entry.name, entry.name_length, entry.index) % session.buckets]
    while place[0] != entry:
        place = &place[0].next_hashed
    place[0] = entry.next_hashed
    _remove_locked(session, entry)
    session.count -= 1
    live_add(LIVE_SESSION_PARTITIONS, -1)
    free(entry)


cdef void session_to_tail_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    """What returned data goes last, or the first busy partition starves the others."""
    if session.last != entry:
        _remove_locked(session, entry)
        _append_locked(session, entry)


cdef int32_t session_next_epoch(int32_t epoch) noexcept nogil:
    return 1 if epoch == 0x7fffffff else epoch + 1
