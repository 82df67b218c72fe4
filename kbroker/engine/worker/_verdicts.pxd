# cython: language_level=3
"""Verdicts of the authorizer that C knows; see _verdicts.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.net._types cimport Request

cdef enum Verdict:
    VERDICT_UNKNOWN = 0           # Python decides
    VERDICT_ALLOWED = 1
    VERDICT_DENIED = 2

# Kafka's numbers of the operations and types of resources that C asks for.
cdef enum:
    OPERATION_READ = 3
    OPERATION_WRITE = 4
    OPERATION_CLUSTER_ACTION = 9
    RESOURCE_TOPIC = 2
    RESOURCE_GROUP = 3
    RESOURCE_CLUSTER = 4
    RESOURCE_TRANSACTIONAL_ID = 5

    VERDICT_NAME_BYTES_MAX = 264  # of a resource; a topic's has 249 at most
    VERDICT_NAME_WORDS = 33
    VERDICT_WAYS = 4              # places that a verdict may take


# The client of a request, as verdicts know it.
cdef struct Asker:
    uint64_t who                  # Session.number: of the principal
    uint64_t host[2]              # its address
    uint64_t is_ipv6              # 0 or 1
    uint64_t hash


# One verdict. Each field is read and written as an atomic word; `turn` is odd while they change.
cdef struct VerdictEntry:
    uint64_t turn
    uint64_t generation           # of the ACLs that decided
    uint64_t who
    uint64_t host[2]
    uint64_t what                 # the verdict, and below it operation, type, length, kind of host
    uint64_t name[VERDICT_NAME_WORDS]
    # The upper half is that of `turn`, the lower one how often it has denied since Python looked.
    int64_t denials
    uint64_t denied_as            # the number of a denial, which Python gave it
    int used                      # since a place was last looked for


cdef struct VerdictSet:
    uint64_t hashes[VERDICT_WAYS]  # 0: nothing was there yet
    VerdictEntry entries[VERDICT_WAYS]


cdef struct Verdicts:
    uint64_t generation           # atomic
    uint64_t hash_key
    uint32_t mask                 # sets - 1
    uint32_t hand                 # under the lock
    int64_t kept                  # the same: verdicts that were put in
    int64_t replaced              # of them, over one that still held
    pthread_mutex_t lock          # of those that write; "queue" in the lock order
    VerdictSet* sets


# The denial in whose place a new verdict is: its number, and how often it had denied.
cdef struct Replaced:
    uint64_t denied_as            # 0: no denial that is counted
    int64_t denials


cdef Verdicts* verdicts_new(uint32_t sets, uint64_t hash_key) noexcept nogil
cdef void verdicts_free(Verdicts* verdicts) noexcept nogil

cdef void asker_of(const Verdicts* verdicts, const Request* request, Asker* asker) noexcept nogil
cdef void asker_init(
    const Verdicts* verdicts, uint64_t who, const uint8_t* address, int is_ipv6, Asker* asker
) noexcept nogil

# Of this generation. A denial that `counts` is one more.
cdef int verdicts_find(
    Verdicts* verdicts, const Asker* asker, int operation, int type_, const uint8_t* name,
    int32_t length, int counts) noexcept nogil

# The place, or -1: it is not kept, since the ACLs have changed, the name is too long, or it is a
# denial and all verdicts in its places allow and are in use.
cdef int64_t verdicts_put(
    Verdicts* verdicts, const Asker* asker, int operation, int type_, const uint8_t* name,
    int32_t length, int verdict, uint64_t generation, uint64_t denied_as, Replaced* replaced,
) noexcept nogil

# How often the denial of this number has denied since; -1: it is not at that place any more.
cdef int64_t verdicts_take_denials(
    Verdicts* verdicts, int64_t place, uint64_t denied_as) noexcept nogil

# None of before counts any more.
cdef void verdicts_forget(Verdicts* verdicts) noexcept nogil
