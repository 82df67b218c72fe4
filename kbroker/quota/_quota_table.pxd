# cython: language_level=3
"""The quotas of users and clients: which applies, and what each has used; see _quota_table.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.core._table cimport Table
from kbroker.quota._rate cimport QuotaRate, QuotaSample, QuotaWindow, TokenBucket

# Kinds.
cdef enum:
    QUOTA_PRODUCE = 0
    QUOTA_FETCH = 1
    QUOTA_REQUEST = 2
    QUOTA_MUTATION = 3
    QUOTA_KINDS = 4
    NO_QUOTA = -1

# In `in_force`: some entity has a quota of this kind.
cdef enum:
    PRODUCE_IN_FORCE = 1
    FETCH_IN_FORCE = 2
    REQUEST_IN_FORCE = 4          # and 8 of mutations, which only Python asks for

    QUOTA_NAME_BYTES_MAX = 128    # of a name that is kept for reports

    # A client id that is not known any more: that of the channel's last request.
    LAST_CLIENT_ID = -2

    QUOTA_TEXT_BYTES_MAX = 44     # of a client id that is kept for its channel's next request


# A name: two hashes under secret keys, so that it takes no more room when it is long.
cdef struct QuotaName:
    uint64_t first
    uint64_t second


# The bounds of an entity. One below 0: it has none of that kind.
cdef struct QuotaLimit:
    QuotaName user
    QuotaName client
    double bounds[QUOTA_KINDS]


# The use of a quota by the clients that share it.
cdef struct QuotaBucket:
    QuotaBucket* older            # by last use
    QuotaBucket* newer
    int kind
    int refs                      # of channels
    QuotaName user
    QuotaName client
    int64_t last_ms
    QuotaRate rate
    TokenBucket tokens
    int64_t throttles             # answers with a delay
    int64_t throttle_ms           # the sum of these delays
    double bound                  # in force when it was used last
    int32_t user_length           # of the beginnings of the names, for reports; -1: it has none
    int32_t client_length
    uint8_t* names
    QuotaSample* samples


# The buckets of a channel's last client. The table's, under its lock.
cdef struct QuotaClient:
    uint64_t generation
    const void* session
    QuotaName client
    int has_client                # 0: its client id is empty
    int32_t text_length           # -1: its client id is too long to be kept
    uint8_t text[QUOTA_TEXT_BYTES_MAX]
    QuotaBucket* buckets[QUOTA_KINDS]  # NULL: it has no quota of this kind
    double bounds[QUOTA_KINDS]


# The client of a request.
cdef struct QuotaAsker:
    void** held                   # a channel's place for its QuotaClient; NULL: it has none
    const void* session           # the user as an address, which is compared
    const uint8_t* user
    int32_t user_length
    const uint8_t* client
    int32_t client_length         # or LAST_CLIENT_ID


# The use that a request makes of quotas.
cdef struct QuotaCharge:
    int kind                      # of the bytes, or NO_QUOTA
    double bytes
    int takes_back                # the bytes, where it has to wait: they are not sent
    double percent                # of a second of one thread's time; below 0: that is not counted


cdef struct QuotaTable:
    pthread_mutex_t lock          # "queue" in the lock order
    int in_force                  # atomic
    int64_t fetch_least           # atomic: that any client may have of a window in one answer
    uint64_t generation           # of the limits
    uint64_t keys[2]
    QuotaWindow windows[QUOTA_KINDS]
    Table limits                  # of QuotaLimit, by user and client
    Table buckets                 # of QuotaBucket, by kind, user and client
    QuotaBucket* oldest
    QuotaBucket* newest
    int64_t buckets_max
    int64_t shared                # resolutions that got a shared bucket, as there were too many


# A bucket in reports. Lengths below 0: it has no such name.
cdef struct QuotaFigure:
    int kind
    double bound
    double rate
    double tokens
    int64_t throttles
    int64_t throttle_ms
    int32_t user_length
    int32_t client_length
    uint8_t names[2 * QUOTA_NAME_BYTES_MAX]


cdef QuotaTable* quota_table_new(
    const QuotaWindow* window, const QuotaWindow* of_mutations, int64_t buckets_max) noexcept nogil
cdef void quota_table_free(QuotaTable* table) noexcept nogil

# How long its channel is not to be read, in ms; 0: it is within all its quotas.
cdef int32_t quota_charge(
    QuotaTable* table, const QuotaAsker* asker, const QuotaCharge* charge, int64_t now_ms,
) noexcept nogil
# The most that one answer may have of a window; INT64_MAX: no quota says so.
cdef int64_t quota_fetch_most(
    QuotaTable* table, const QuotaAsker* asker, int64_t now_ms) noexcept nogil
# Whether some client may not have so much in one answer. Without the lock.
cdef int quota_bounds_fetch(QuotaTable* table, int64_t size_bytes) noexcept nogil
# Takes tokens for so many mutations, more than there are once. -1: with `strict`, where tokens are
# owed, and none were taken. `throttle_ms`: how long it takes until none are owed; with `strict`
# only where none were taken.
cdef int quota_mutate(
    QuotaTable* table, const QuotaAsker* asker, double count, int strict, int64_t now_ms,
    int32_t* throttle_ms) noexcept nogil
# A channel goes.
cdef void quota_client_free(QuotaTable* table, void* held) noexcept nogil

# The limits of one generation. -1: no memory.
cdef int quota_limit_put(Table* limits, const QuotaLimit* limit) noexcept nogil
cdef void quota_limits_free(Table* limits) noexcept nogil
# They hold from now on; the table is taken over.
cdef void quota_table_limit(QuotaTable* table, Table* limits, int in_force) noexcept nogil
cdef QuotaName quota_name(
    const QuotaTable* table, const uint8_t* text, int32_t length) noexcept nogil
# Of the buckets that were used last, how many of them.
cdef int64_t quota_figures(
    QuotaTable* table, QuotaFigure* figures, int64_t most, int64_t now_ms) noexcept nogil

cdef QuotaName ABSENT             # this part does not count
cdef QuotaName EVERY              # the default
