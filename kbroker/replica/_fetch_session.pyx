# cython: language_level=3
"""Incremental fetch sessions (KIP-227): what a client follows, so that it need not say it again.

A session holds the partitions of one client in the order in which they are served, with what the
client was last told about each. The cache finds sessions by id, keeps them in the order of their
last use and is bounded by slots and by bytes: when it is full, sessions that have been idle for the
eviction time give way, the least recently used first, or else the new client is served without a
session, as by Apache Kafka. To a follower's session any client's gives way, and no client's takes
the place of a follower's that is in use. A session that grows beyond its bound, or the cache's,
ends: its client is told that it is not there, fetches in full and gets what a new client would get.

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
from kbroker.core._live_objects cimport LIVE_FETCH_SESSIONS, LIVE_SESSION_PARTITIONS, live_add
from kbroker.core._lock_order cimport RANK_TABLE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._require cimport require, require_count, require_same
from kbroker.core._sync cimport kb_now_ns, pthread_mutex_destroy

cdef enum:
    BUCKETS_MIN = 8


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
    """When nobody holds a session any more."""
    if cache == NULL:
        return
    while cache.oldest != NULL:
        _free(_unlink_locked(cache, cache.oldest))
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
        require_same(session.older.newer, session, "fetch session: the older one names it")
        session.older.newer = session.newer
    else:
        require_same(cache.oldest, session, "fetch session: without an older one it is the oldest")
        cache.oldest = session.newer
    if session.newer != NULL:
        require_same(session.newer.older, session, "fetch session: the newer one names it")
        session.newer.older = session.older
    else:
        require_same(cache.newest, session, "fetch session: without a newer one it is the newest")
        cache.newest = session.older


cdef FetchSession* _unlink_locked(SessionCache* cache, FetchSession* session) noexcept nogil:
    # Out of the cache. What is returned is to be freed by the caller; NULL: by its last holder.
    cdef FetchSession** place = &cache.buckets[<uint32_t>session.session_id % SESSION_BUCKETS]
    while place[0] != session:
        require(place[0] != NULL, "fetch session: it is in its bucket", session.session_id, 0)
        place = &place[0].next_hashed
    place[0] = session.next_hashed
    _unlink_age_locked(cache, session)
    cache.count = <int32_t>require_count(cache.count - 1, "fetch sessions: they are counted")
    session.closed = 1
    return _drop_locked(session)


cdef FetchSession* _drop_locked(FetchSession* session) noexcept nogil:
    session.refs -= 1
    require(session.refs >= 0, "fetch session: references are dropped once", session.refs, 0)
    return session if session.refs == 0 else NULL


cdef void _free(FetchSession* session) noexcept nogil:
    # Nobody knows it any more; outside the locks, for it may be large. NULL is allowed.
    cdef SessionPartition* entry
    if session == NULL:
        return
    while session.first != NULL:
        entry = session.first
        session.first = entry.next
        free(entry)
    kb_add_i64(&session.cache.partitions, -<int64_t>session.count)
    live_add(LIVE_SESSION_PARTITIONS, -<int64_t>session.count)
    live_add(LIVE_FETCH_SESSIONS, -1)
    kb_add_i64(&session.cache.bytes, -session.size_bytes)
    free(session.hashed)
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
    session.buckets = BUCKETS_MIN
    session.hashed = <SessionPartition**>calloc(BUCKETS_MIN, sizeof(SessionPartition*))
    if session.hashed == NULL or _charge(
        session, sizeof(FetchSession) + BUCKETS_MIN * sizeof(SessionPartition*)
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
    # Evicts who gives way until a slot and so many bytes are free, or nobody does any more.
    cdef FetchSession* evicted
    cdef FetchSession* unlinked
    cdef int64_t now_ns = kb_now_ns()
    while True:
        lock_ranked(&cache.lock, RANK_TABLE)
        evicted = NULL
        unlinked = NULL
        if (
            cache.count >= cache.slots_max
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
    full = (cache.count >= cache.slots_max
            or kb_load_i64(&cache.bytes) + size_bytes > SESSIONS_BYTES_MAX)
    if not full:
        session.session_id = _new_id_locked(cache)
        session.next_hashed = cache.buckets[<uint32_t>session.session_id % SESSION_BUCKETS]
        cache.buckets[<uint32_t>session.session_id % SESSION_BUCKETS] = session
        _link_newest_locked(cache, session)
        cache.count += 1
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

cdef SessionPartition** _place_locked(
    FetchSession* session, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index,
) noexcept nogil:
    cdef uint64_t key = session.cache.hash_key
    cdef uint64_t mixed
    if name != NULL:
        mixed = kb_keyed_hash(key, name, <size_t>name_length)
    else:
        mixed = kb_keyed_hash(key, topic_id, 16)
    mixed = kb_keyed_number(key, mixed, <uint32_t>index)
    return &session.hashed[mixed & (session.buckets - 1)]


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
    int32_t index,
) noexcept nogil:
    """The entry of a partition, by id (name NULL) or by name; NULL: it is not followed."""
    cdef SessionPartition* entry = _place_locked(
        session, topic_id, name, name_length, index)[0]
    while entry != NULL and not _same(entry, topic_id, name, name_length, index):
        entry = entry.next_hashed
    return entry


cdef SessionPartition* session_follow_locked(
    FetchSession* session, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index, int* full,
) noexcept nogil:
    """The entry of a partition, a new one at the end if there was none.

    NULL with `full` set: it is one more than fits, or there is no memory. NULL without: a name
    longer than any topic's is not followed, since one request could name it once for a hundred
    thousand partitions.
    """
    cdef SessionPartition** place
    cdef SessionPartition* entry = session_partition_locked(
        session, topic_id, name, name_length, index)
    cdef size_t size_bytes
    if entry != NULL or name_length > TOPIC_NAME_CHARS_MAX:
        return entry
    if name == NULL:
        name_length = 0
    size_bytes = sizeof(SessionPartition) + <size_t>name_length
    if session.count >= session.buckets:  # beyond: there was no room for a larger table
        _resize_locked(session, 2 * session.buckets)
    if session.count == SESSION_PARTITIONS_MAX or _charge(session, <int64_t>size_bytes) != 0:
        full[0] = 1
        return NULL
    entry = <SessionPartition*>calloc(1, size_bytes)
    if entry == NULL:
        _charge(session, -<int64_t>size_bytes)
        full[0] = 1
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
    place = _place_locked(session, topic_id, name, name_length, index)
    entry.next_hashed = place[0]
    place[0] = entry
    _append_locked(session, entry)
    session.count += 1
    kb_add_i64(&session.cache.partitions, 1)
    live_add(LIVE_SESSION_PARTITIONS, 1)
    return entry


cdef void _resize_locked(FetchSession* session, uint32_t buckets) noexcept nogil:
    # Without memory or room for another table the old one stays, and its chains get longer.
    cdef int64_t more_bytes = (<int64_t>buckets - <int64_t>session.buckets) * <int64_t>sizeof(
        SessionPartition*)
    cdef SessionPartition** hashed
    cdef SessionPartition** place
    cdef SessionPartition* entry = session.first
    if _charge(session, more_bytes) != 0:
        return
    hashed = <SessionPartition**>calloc(buckets, sizeof(SessionPartition*))
    if hashed == NULL:
        _charge(session, -more_bytes)
        return
    free(session.hashed)
    session.hashed = hashed
    session.buckets = buckets
    while entry != NULL:
        place = _place_locked(session, entry.topic_id, entry.name, entry.name_length, entry.index)
        entry.next_hashed = place[0]
        place[0] = entry
        entry = entry.next


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
        require_same(entry.previous.next, entry, "session's partition: the one before names it")
        entry.previous.next = entry.next
    else:
        require_same(session.first, entry, "session's partition: it is the first")
        session.first = entry.next
    if entry.next != NULL:
        require_same(entry.next.previous, entry, "session's partition: the one after names it")
        entry.next.previous = entry.previous
    else:
        require_same(session.last, entry, "session's partition: it is the last")
        session.last = entry.previous


cdef void session_forget_locked(FetchSession* session, SessionPartition* entry) noexcept nogil:
    cdef SessionPartition** place = _place_locked(
        session, entry.topic_id, entry.name, entry.name_length, entry.index)
    while place[0] != entry:
        require(place[0] != NULL, "session's partition: it is in its bucket", entry.index, 0)
        place = &place[0].next_hashed
    place[0] = entry.next_hashed
    _remove_locked(session, entry)
    session_note_missing_locked(session, entry, 0)
    require(session.count > 0, "session's partitions: they are counted", session.count, 1)
    session.count -= 1
    kb_add_i64(&session.cache.partitions, -1)
    live_add(LIVE_SESSION_PARTITIONS, -1)
    _charge(session, -<int64_t>(sizeof(SessionPartition) + <size_t>entry.name_length))
    free(entry)
    if session.buckets > BUCKETS_MIN and session.count < session.buckets // 8:
        _resize_locked(session, session.buckets // 2)


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
