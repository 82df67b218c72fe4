# cython: language_level=3
"""The struct sheet of the hot path: what all handlers share, and what each has for itself."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.coordinator.runtime._structs cimport Shards
from kbroker.coordinator.txn._structs cimport TxnIds
from kbroker.core._arena cimport Arena
from kbroker.core._limits cimport LISTENERS_MAX, PROCESSORS_MAX
from kbroker.core._sync cimport pthread_mutex_t
from kbroker.log.engine._types cimport Batch
from kbroker.net._types cimport Handler, Request, RequestChannel, RequestList
from kbroker.replica._fetch_session cimport SessionCache
from kbroker.replica._metadata_view cimport MetadataView
from kbroker.replica._partition cimport FetchIsolation, Partition, ReadFrom
from kbroker.replica._snapshot cimport Snapshot, SnapshotReader, SnapshotRegistry

from kbroker.engine.worker._leader_throttle cimport LeaderThrottle
from kbroker.engine.worker._verdicts cimport Verdicts


cdef enum:
    TICKS_MAX = 64                # new deadlines of one call; a full list goes back to Python
    TICK_MS = 4                   # a long poll ends at most this much late
    PARKED_BUCKETS = 2048
    GIL_WAIT_BUCKETS = 24         # powers of two of microseconds: up to 4 s
    ERROR_CODES = 160             # Kafka's from -1 on, with room for new ones


# Why a hot request goes to Python.
cdef enum HotReason:
    REASON_NONE = 0
    REASON_COLD = 1               # not a hot API or version
    REASON_DECOMPRESS = 2         # a codec that C cannot open here
    REASON_RECOMPRESS = 3         # the topic wants another codec
    REASON_METADATA = 4           # a topic to create, an error; see _metadata
    REASON_GROUP = 5              # of a group, and not plainly right; see _offset_commit
    REASON_TRANSACTION = 6        # of a transaction, and not plainly right; see _end_txn
    REASON_RIGHTS = 7             # the authorizer is to decide; then it comes again


# The conditions that the watches of a parked request can wait for.
cdef enum WaitsFor:
    WAITS_FOR_BYTES = 0           # a fetch: bytes that it can read
    WAITS_FOR_FOLLOWERS = 1       # a write: the followers have its batch
    WAITS_FOR_LOG_STARTS = 2      # a deletion of records: the followers' logs begin at an offset
    WAITS_FOR_COORDINATOR = 3     # a produce that begins a transaction here: it has no watch


# A kind of request that waits. Each API that parks requests has one, set at import; the lists and
# deadlines (_parked, _long_polls) know of a request no more than this.
cdef struct WaiterKind:
    WaitsFor waits_for
    # Answers a request that was moved to done: once, no lock held, its watches off all lists.
    void (*complete)(
        HotWorker* worker, Snapshot* snapshot, ParkedRequest* parked) noexcept nogil
    # The same of one whose connection has gone: it is not answered. NULL: that is all.
    void (*give_up)(ParkedRequest* parked) noexcept nogil
    # Frees what the request keeps for its answer, with the last reference. NULL: it keeps nothing.
    void (*free_kept)(void* kept) noexcept nogil


# The condition that a parked request waits for at one partition.
cdef struct ParkedWatch:
    ParkedWatch* previous         # in one of the partition's lists, under its lock
    ParkedWatch* next
    ParkedRequest* parked
    Partition* partition          # one reference
    int64_t counted               # of it in the request's `found`, under the same lock
    WaitsFor waits_for            # as the request's kind
    Batch* batch                  # of a write; what becomes of it, under the same lock
    int64_t fetch_offset
    int64_t high_watermark        # of a follower's fetch: beyond it there is something to tell
    int64_t log_start             # of a follower's fetch: beyond it there is, too
    int held_back                 # a follower's fetch: by the leader's rate, until its deadline
    int32_t leader_epoch          # in which a consumer believes; -1: it does not say
    int32_t max_bytes
    int linked                    # atomic; written under the partition's lock


cdef struct ParkedRequest:
    int refs                      # atomic: the deadline list's one, and each visitor's
    int state                     # atomic: ParkedState, moved by parked_fire() alone
    Request* request              # NULL: of a group's write or a deletion, and Python is called
    ParkedTable* table
    const WaiterKind* kind
    void* kept                    # for its answer, by the kind
    uint64_t wanted               # atomic: a fetch: bytes; a write: batches, all that wait
    uint64_t wanted_least         # of a fetch that gathers, when its moment is over
    int lingers                   # a fetch: the moment is also over when a request waits
    uint64_t found                # atomic: of that, the sum over the watches
    int must_answer               # atomic: there is an error, or something else, to answer
    FetchIsolation isolation
    ReadFrom read_from
    uint64_t tick                 # of its deadline
    ParkedRequest* previous       # in the bucket of its tick, under the table's lock
    ParkedRequest* next
    ParkedRequest* next_left      # in the table's `left`, or in a worker's `settled`, `waiting`
    ParkedRequest* next_asking    # in a worker's `asking`, or in the table's
    ParkedRequest* previous_here  # among those of its channel, under the table's lock
    ParkedRequest* next_here
    int listed
    int left
    int outlasts_requests         # it waits until none of its connection's is left
    int count
    int64_t size_bytes            # with the data kept for its answer
    int in_half                   # it counts in the half that clients' fetches get
    ParkedWatch* watches          # in the same allocation


cdef struct ParkedTable:
    pthread_mutex_t lock          # "queue" in the lock order
    ParkedRequest* buckets[PARKED_BUCKETS]
    uint64_t announced[PARKED_BUCKETS]  # the tick last announced to Python, per bucket
    # ParkedRequests for a handler: their connections have gone, or Python is to be called. Written
    # under the lock, looked at without.
    void* left
    # ParkedRequests for which a handler is to ask a coordinator; written and looked at in that way.
    void* asking
    # New deadlines of handlers that had something slow to do, for another one to take to Python.
    uint64_t ticks[TICKS_MAX]
    int tick_count                # written under the lock, looked at without
    int64_t count                 # parked now
    int64_t produce_count         # of them, with the writes of groups
    int64_t expired_total
    int64_t expired_produces      # of them
    int64_t left_total            # their connections went first
    int closing                   # atomic: nothing is parked any more
    int64_t bytes                 # atomic: of requests in memory, with their kept data
    int64_t half_bytes            # atomic: of those, of clients' fetches
    int64_t bytes_max             # for all; half of it for clients' fetches


# The address of this node that clients of one listener get; host NULL: the address they used.
cdef struct OwnAddress:
    uint8_t* host
    int32_t host_length
    int32_t port


cdef struct OwnNode:
    int32_t node_id
    int creates_topics            # auto.create.topics.enable
    int listener_count            # 0 until it is known: Python answers Metadata
    int32_t host_bytes_max
    int32_t followers_listener    # the only one that followers may come to; -1: any
    OwnAddress addresses[LISTENERS_MAX]


# Transactions without Python, once this broker coordinates some (`engine/_transactions`). Plans are
# those of Produce.
cdef struct TransactionHooks:
    Shards* shards                # of __transaction_state
    const TxnIds* ids
    int serves                    # atomic; 0: Python serves all of it
    int value_version             # atomic: of the records
    int16_t epoch_max             # the last epoch of a producer id
    void (*add_partitions_run)(
        HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil
    void (*end_txn_run)(HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil
    # 1: the batches that begin a transaction in their partitions may be written, or the plan is to
    # be among those of `produce_join`. 0: their coordinator is to be asked.
    int (*produce_verify)(HotWorker* worker, void* plan) noexcept nogil
    # The plans of a run that go on. The others wait for an answer of their coordinator.
    void* (*produce_join)(HotWorker* worker, Snapshot* snapshot, void* plans) noexcept nogil


cdef struct HotContext:
    RequestChannel* request_channel
    SnapshotRegistry* registry
    MetadataView** published      # of the topic table; what is there is atomic, and may be NULL
    OwnNode own                   # set before the handlers start
    SessionCache* sessions
    Verdicts* verdicts            # set before the handlers start; NULL: there is no authorizer
    uint64_t hash_seed            # secret: names that a client chooses do not choose places
    Shards* groups                # NULL: Python answers everything of groups
    TransactionHooks* transactions  # atomic; NULL: Python answers everything of transactions
    int64_t offset_metadata_max   # bytes: offset.metadata.max.bytes
    ParkedTable parked
    HotWorker* at_once[PROCESSORS_MAX]  # atomic: each Processor's own, or NULL
    int32_t fetch_bytes_max       # fetch.max.bytes of the broker
    int32_t inline_range_bytes    # ranges up to this are read into the answer
    LeaderThrottle leader_throttle
    int rack_aware                # consumers are sent to the replica in their rack
    int verifies                  # atomic: transaction.partition.verification.enable
    int32_t verification_ms       # how long a produce waits for its coordinator: request.timeout.ms
    # How long a follower's fetch waits for more than there is: where a request waits for the
    # records that it acknowledges or brings, and where none does.
    int64_t gather_ns
    int64_t linger_ns


# A partition whose batches of this run are answered when they are on the disk.
cdef struct AwaitedFlush:
    AwaitedFlush* next
    Partition* partition          # one reference
    Batch* batches                # of the run, in their order


cdef struct HotWorker:
    HotContext* context
    Handler handler
    SnapshotReader* reader
    Arena arena
    int has_role                  # it may have been relieved of it
    int mode                      # what it serves: _worker_mode
    int may                       # and what it may do then
    int gives_back                # what it was given last is a handler's
    int leaving                   # atomic: its thread is to come back, for good
    int named                     # the kernel knows the thread by kernel_name
    char kernel_name[16]
    RequestList answers[PROCESSORS_MAX]
    RequestList local[PROCESSORS_MAX]  # locally processed: they leave with the answers
    ParkedRequest* waiting        # this run's produces that are to wait, once that is pushed
    ParkedRequest* waiting_last
    Request* cold_head            # of the last call: for Python
    Request* cold_tail
    Partition** touched           # partitions with watchers that this run appended to
    int touched_count
    Partition* advanced           # partitions that this run's followers moved, with watchers
    ParkedRequest* gathering      # a follower's fetch of this thread's runs, with a reference
    int64_t gathers_until_ns
    RequestList put_off           # produces of this run with much to unpack, in small batches
    RequestList put_off_alone     # in large ones: its last
    int64_t unpacks_since_ns      # since the first that this run had put off
    AwaitedFlush* flushes         # of this run, and below the produces that wait for them
    void* unflushed               # ProducePlan
    uint64_t ticks[TICKS_MAX]
    int tick_count
    ParkedRequest* settled        # of Python's that are over, each with a reference
    ParkedRequest* asking         # for which Python is to ask a coordinator, each with a reference
    # Figures, written by the worker's thread, read by anyone.
    int64_t produce_requests
    int64_t produce_partitions    # named by these requests
    int64_t produce_batches
    int64_t produce_records
    int64_t produce_bytes
    int64_t produce_errors
    int64_t rejected_bytes        # of batches that were too large
    int64_t produce_codes[ERROR_CODES]  # answers by partition; the place is the code + 1
    int64_t fetch_requests
    int64_t fetch_partitions      # read for these requests
    int64_t fetch_bytes           # to consumers
    int64_t replicated_bytes      # to followers
    int64_t fetch_errors
    int64_t fetch_codes[ERROR_CODES]    # answers and their partitions
    int64_t parked_fetches
    int64_t parked_produces
    int64_t metadata_requests     # those that Python did not answer
    int64_t metadata_bytes
    int64_t heartbeat_requests    # those that Python did not answer
    int64_t consumer_heartbeat_requests  # the same, of consumer groups
    int64_t commit_requests
    int64_t commit_offsets
    int64_t transaction_adds      # requests that Python did not answer
    int64_t transaction_ends
    int64_t transaction_joins     # produces that added their partitions, or had them verified
    int64_t charged_ns            # up to here the time is charged to quotas; 0: none is
    int64_t uncharged             # the weight of this run's requests that are not: _charges
    int64_t gil_waits[GIL_WAIT_BUCKETS]
    int64_t gil_wait_ns
