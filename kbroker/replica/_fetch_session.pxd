# cython: language_level=3
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.core._table cimport Table


cdef struct SessionPartition:
    SessionPartition* previous    # in the order in which they are served
    SessionPartition* next
    uint32_t hash
    int32_t index
    int32_t leader_epoch          # -1: not checked
    int32_t fetched_epoch         # the same
    uint32_t name_hash            # by id: of the topic's name when it was here; 0: it never was
    int64_t fetch_offset
    int64_t log_start_offset      # of a follower's log
    int32_t max_bytes
    # The last answer to the client.
    int64_t sent_high_watermark
    int64_t sent_log_start
    int sent_error
    uint8_t missing               # that was an error for want of a partition
    # By id, or by name for versions below 13.
    uint8_t topic_id[16]
    int32_t name_length
    uint8_t* name                 # in the same allocation


cdef struct FetchSession:
    pthread_mutex_t lock
    SessionCache* cache
    int refs                      # under the cache's lock
    int32_t session_id
    int32_t epoch                 # the one that the next request must carry
    int by_id
    int privileged                # a follower's: clients' sessions give way to it
    int64_t answered_bytes        # of records, by its last answer
    # A client that may read all that it follows: generation of the ACLs (0: none is known),
    # principal, address. See _fetch_rights.
    uint64_t allowed[4]
    # Of a follower's fetches that find something and may wait for more (`_fetch_gathers`).
    int gather_tried              # the last one did, and the next shows whether that was of use
    int gather_pause              # so many do not, until one tries again
    int gather_paused             # of them
    int closed
    uint32_t missing              # of the partitions that it follows
    int64_t size_bytes            # of it and all that it has, as counted in the cache
    Table followed                # of SessionPartitions
    SessionPartition* first
    SessionPartition* last
    # The cache's.
    FetchSession* older
    FetchSession* newer
    int64_t created_ns
    int64_t last_used_ns


cdef struct SessionCache:
    pthread_mutex_t lock          # "table" in the lock order, below the snapshot's
    int32_t slots_max             # max.incremental.fetch.session.cache.slots
    int64_t eviction_ns_min       # min.incremental.fetch.session.eviction.ms
    int64_t partitions            # atomic: in memory, in whatever session
    int64_t bytes                 # atomic: the same
    int64_t evictions
    uint64_t seed
    uint64_t hash_key
    Table by_id
    FetchSession* oldest
    FetchSession* newest


cdef SessionCache* sessions_new(int32_t slots_max, int64_t eviction_ms_min) noexcept nogil
cdef void sessions_free(SessionCache* cache) noexcept nogil
cdef int64_t session_bytes(uint32_t partitions, int64_t names_bytes) noexcept nogil
cdef FetchSession* session_create(
    SessionCache* cache, int by_id, int privileged, int64_t size_bytes) noexcept nogil
cdef FetchSession* session_find(SessionCache* cache, int32_t session_id) noexcept nogil
cdef void session_close(SessionCache* cache, int32_t session_id) noexcept nogil
cdef void session_release(SessionCache* cache, FetchSession* session) noexcept nogil

cdef SessionPartition* session_partition_locked(
    FetchSession* session, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index) noexcept nogil
cdef SessionPartition* session_follow_locked(
    FetchSession* session, const uint8_t* topic_id, const uint8_t* name, int32_t name_length,
    int32_t index, int* full) noexcept nogil
cdef void session_forget_locked(FetchSession* session, SessionPartition* entry) noexcept nogil
cdef void session_to_tail_locked(FetchSession* session, SessionPartition* entry) noexcept nogil
cdef void session_note_missing_locked(
    FetchSession* session, SessionPartition* entry, int missing) noexcept nogil
cdef int32_t session_next_epoch(int32_t epoch) noexcept nogil
