# cython: language_level=3
"""A fetch on its way: what it asks, what its session adds, what was read."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.log.engine._aborted cimport AbortedTransaction
from kbroker.log.engine._types cimport FileSlice, Patience
from kbroker.net._types cimport Block, Request
from kbroker.replica._closest cimport ReaderPlace
from kbroker.replica._fetch_session cimport FetchSession, SessionPartition
from kbroker.replica._partition cimport FetchIsolation, Partition, ReadFrom
from kbroker.replica._snapshot cimport TopicEntry
from kbroker.engine.apis._leaders cimport NamedLeaders

cdef enum:
    TOPIC_IDS_FROM = 13           # versions
    INITIAL_EPOCH = 0             # of a session: it is to be made
    FINAL_EPOCH = -1              # of a session: none, or its end
    PARTITIONS_AT_ONCE_MAX = 16   # more are more work than waking a handler
    ANY_REPLICA_FROM = 11         # of a version: consumers may be sent to a follower
    # How long a follower waits for records before it gets the new high watermark.
    NEWS_WAIT_MS = 8


# One partition that this fetch reads: from the request, or from its session.
cdef struct FetchTarget:
    Partition* partition
    uint8_t* topic_id             # from version 13
    uint8_t* name
    int32_t name_length
    # Its topic in the snapshot, while that is entered, or one that was made again; NULL: neither.
    const TopicEntry* topic
    int32_t index
    int32_t leader_epoch
    int32_t fetched_epoch         # of the last record that the client has; -1: not checked
    int64_t fetch_offset
    int64_t follower_start        # where a follower's log begins; -1: it does not say
    int64_t max_bytes
    SessionPartition* entry       # under the session's lock
    int in_answer
    # The result of the read.
    int16_t error
    int not_there                 # no such topic or partition: nothing was read
    int made_again                # such a one: under its name there is another topic now
    uint32_t name_hash            # of its topic, if that was found
    int32_t preferred             # the broker from which to read instead; -1: this one
    int held_back                 # a follower's: records would be over the leader's rate
    int diverges                  # the client's log is not ours: it is answered with our end
    int32_t diverging_epoch
    int64_t diverging_end
    int64_t high_watermark
    int64_t last_stable
    int64_t log_start
    FileSlice slice
    Block* block                  # the room of the slice; NULL: it has none
    # Of a reader of committed records: the aborted transactions that the slice may have records of.
    AbortedTransaction* aborted
    int32_t aborted_count


cdef struct FetchPlan:
    Request* request
    int16_t version
    int flexible
    int32_t replica_id            # of a follower, else negative
    int64_t replica_epoch         # of its registration as a broker; -1: it does not say
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    FetchIsolation isolation
    ReadFrom read_from
    ReaderPlace place             # of a consumer that may be sent to a follower
    int32_t session_id
    int32_t session_epoch
    int32_t count
    FetchTarget* targets
    int32_t forgotten_count
    FetchTarget* forgotten
    # Decided on the way.
    int incremental
    int16_t error                 # of the whole answer
    FetchSession* session         # locked while it is here
    int32_t answer_session_id
    int64_t read_bytes
    int64_t gathers_bytes         # it waits a moment for so much; 0: it does not
    int64_t gathers_ns            # the moment
    int lingers                   # until a request waits for the records that it would bring
    Patience patience
    # The partition for which it would have to wait for more, or for the disk. Writes do not wait
    # with it: for them the log is what may be slow.
    Partition* slow
    # Or a divergence, a better replica, a follower's first fetch: nothing to wait for.
    int any_error
    int notes_follower            # it says for the first time how far a follower is
    int out_of_sync               # the follower, somewhere: it is to join, and nothing holds it up
    int has_news                  # of a high watermark: it waits NEWS_WAIT_MS at most
    int32_t not_there_count
    int leaves_out                # partitions of its session that are missing
    int32_t known_count           # of not_there_count: the session's client has had their errors
    int is_stranger               # it claims to be a follower's, and its client may not be one
    NamedLeaders leaders          # what the answer has
