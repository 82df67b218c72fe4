# cython: language_level=3
"""The struct sheet of the network core: what a request is, and who owns each part of it.

Ownership in one line each:
- `Channel` belongs to its Processor's thread, or to the handler that has the Processor's turn while
  that sleeps; no other reads or writes it, except its addresses, which never change. It is freed
  once its socket is closed and no request of it is in flight.
- `Request` is made by a Processor, lent to a handler, and always comes back through
  `processor_push` (an answer, a no-op or a close), so that no queue for answers can be full.
- `Chunk` is shared: each request that points into it holds a reference.
- `RequestChannel` is under its own mutex, the last one in the lock order.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kbroker._state cimport CHANNEL_STATES, SlotQueue
from kbroker.core._figures cimport KB_TIME_BUCKETS
from kbroker.core._limits cimport (
    API_KEYS_MAX, API_VERSIONS_MAX, COPIED_SLICE_BYTES_MAX, LISTENERS_MAX, PROCESSORS_MAX,
    WORKERS_MAX)
from kbroker.core._sync cimport pthread_mutex_t, pthread_t
from kbroker.quota._quota_table cimport QuotaTable


cdef struct Chunk:
    int refs                      # atomic
    uint32_t capacity_bytes
    uint32_t filled_bytes         # the owning Processor's
    uint8_t* data                 # in the same allocation


# One piece of an answer: bytes in memory (fd < 0) or a range of a file.
cdef struct Part:
    uint8_t* data
    int64_t length
    int fd
    int64_t position
    int64_t warm_until            # a position: up to here it is in memory, as far as is known
    void* keeper                  # keeps the range alive; released with release(keeper)
    void (*release)(void* keeper) noexcept nogil


cdef enum:
    BLOCKS_MAX = 16               # of a Processor: 288 KB


# Memory for records in an answer: see _blocks.
cdef struct Block:
    Block* next                   # while it is free
    Processor* processor
    uint8_t data[COPIED_SLICE_BYTES_MAX]


cdef enum:
    INLINE_BYTES = 320            # an answer of a produce to a few partitions fits
    INLINE_PARTS = 3              # head, one file range, tail
    NO_API_KEY = -1               # of a request that has none: see RequestKind
    AUTHENTICATION_BYTES_MAX = 512 << 10  # of such a frame (sasl.server.max.receive.size)
    PEER_NAME_BYTES_MAX = 16 << 10


# Of requests that are no client's: theirs have kind 0. A client may send any api_key.
cdef enum RequestKind:
    READ_AHEAD = 1                # a Processor's own; see _send
    AUTHENTICATION = 2            # a frame before the channel is open
    PEER_NAME = 3                 # what the transport has proved about the peer, before it is open


cdef enum RequestAction:
    ACTION_NONE = 0
    ACTION_SEND = 1
    ACTION_NO_OP = 2              # acks=0: nothing to send, the channel goes on
    ACTION_CLOSE = 3              # what was answered is sent, then the connection ends
    ACTION_OPEN = 4               # it has authenticated: what was answered is sent, then it is open


# Why this side ended a connection, for the log and the figures.
cdef enum:
    CAUSE_MALFORMED = 0           # a hot request that does not parse
    CAUSE_SILENT_ERROR = 1        # acks=0: nothing else can be said
    CAUSE_NO_MEMORY = 2           # or an answer longer than a frame can be
    CAUSE_FRAME_SIZE = 3
    CAUSE_STATE = 4               # an event that the channel's state does not allow
    CAUSE_HEADER = 5              # of a cold request
    CAUSE_PYTHON = 6              # its handler has logged the reason
    CAUSE_UNREAD = 7              # it left answers in memory and took none for longest: _unsent
    CAUSE_INVARIANT = 8           # its own state cannot be trusted: _require
    CAUSE_HANDSHAKE = 9
    CAUSE_AUTHENTICATION = 10     # failed
    CAUSE_NOT_TAKEN = 11          # no memory for it, or its transport did not open
    CAUSE_OPENING = 12            # its handshake or authentication took too long
    CAUSE_TLS_HELLO = 13          # a client begins with TLS where there is none
    CAUSE_EXPIRED = 14            # its session was over, and it did not authenticate again
    CAUSE_CROWDED = 15            # one of too many that had not authenticated
    CAUSE_OPENING_BYTES = 16      # too many bytes of those that had not authenticated
    CAUSES = 17


cdef struct Request:
    Request* next                 # in the queue, in a run, in an answer queue
    Channel* channel
    Processor* processor
    uint64_t request_id           # increases by one with each request of a connection
    int8_t cached                 # it went through REQUEST_LOCAL_PROCESSED
    int8_t compact                # allocated up to inline_parts: a cold one, which may wait long
    int8_t cold_reason            # why Python has it: REASON_* of the hot path
    int8_t kind                   # RequestKind
    int32_t frames                # more than 1: a train of Produce frames
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    uint8_t* data                 # the first frame, after its size
    uint32_t length_bytes         # of the first frame
    uint32_t total_bytes          # of all frames with their sizes, from data - 4
    Chunk* chunk                  # one reference, or NULL once detached
    uint8_t* detached             # a private copy of the frame, while parked
    void* slow_file               # what it was set aside for; an address to compare
    int64_t* late_from_ns         # atomic, of a write's data directory: see _aside; NULL: a read
    void* guards                  # of a produce that has waited for its transaction: see the API
    void* rights                  # AskedRights that Python has decided, or is to: the hot path's
    int64_t warmed_ns             # when its file range was read ahead last; 0: never
    # When, by the monotonic clock; read once a turn or a run, not for each request.
    int64_t received_ns           # its last byte
    int64_t dequeued_ns           # a handler took it
    int64_t waiting_ns            # the handler let go of it: it waits for something; 0: never
    int64_t completed_ns          # its answer is there
    int64_t picked_ns             # its Processor has the answer
    # The answer.
    int action                    # ACTION_*: what its Processor does with it
    int32_t throttle_ms           # sent in it, and its channel is not read for so long; 0: neither
    int cause                     # CAUSE_*, with ACTION_CLOSE
    int part_count
    int part_next                 # the Processor's place in the parts
    # Here, since they take no room between two of other sizes.
    int8_t taken_up               # by a run that set it aside; its API's own meaning
    int8_t from_follower          # a fetch of another broker's: its times are counted apart
    int8_t is_unsent              # it counts among its channel's unsent bytes
    Request* local_next           # in a list of locally processed requests
    Session* opens_as             # with ACTION_OPEN: a reference, and the channel takes it
    int64_t own_bytes             # of the answer in memory of its own: not in the inline buffers
    Part* parts                   # inline_parts or an allocation; NULL: compact, no answer yet
    uint8_t* head                 # the memory of parts: inline_bytes or an allocation
    Part inline_parts[INLINE_PARTS]  # from here on not in a compact one
    uint8_t inline_bytes[INLINE_BYTES]


# A chain of requests with its two ends; by which pointer, its owner says.
cdef struct RequestList:
    Request* head
    Request* tail


# A transport's answer where it has moved no byte.
cdef enum TransportStatus:
    TRANSPORT_DONE = 0            # the handshake is complete; of a receive: the peer has ended
    TRANSPORT_WANTS_READ = -1
    TRANSPORT_WANTS_WRITE = -2
    TRANSPORT_FAILED = -3
    TRANSPORT_ANSWERED = -4       # of a handshake: the peer is to answer what was sent to it


# The operations of a transport that is not the plain one: net/_transport.pxd. `own` is what `open`
# made for a connection; the Processor's turn is held.
cdef struct Transport:
    int (*open)(void* context, int fd, void** own) noexcept nogil  # 0, or -1
    int (*handshake)(void* own) noexcept nogil
    # `drained`: no byte is left that no event of the socket announces.
    int64_t (*receive)(void* own, uint8_t* into, int64_t room, int* drained) noexcept nogil
    # After it wanted something the same bytes are given again, with others after them or not.
    # `more`: they are followed by more at once.
    int64_t (*send)(void* own, const uint8_t* data, int64_t length, int more) noexcept nogil
    # Received and not yet given out; not what the socket has.
    int (*has_bytes)(void* own) noexcept nogil
    # After the handshake: the length of the name that it has proved of the peer, and a copy of it,
    # to be freed; 0: there is none, -1: it is too long, or there is no memory. NULL: never one.
    int (*peer_name)(void* own, uint8_t** name) noexcept nogil
    void (*end_sending)(void* own) noexcept nogil
    void (*close)(void* own) noexcept nogil     # without waiting; the socket is closed after it


# A client that has authenticated: see _sessions.
cdef struct Session:
    int refs                      # atomic: listeners and channels
    uint64_t number               # of the principal; no later session has it
    void* principal               # a Python object, kept as long as the session
    const uint8_t* user           # its name, kept as long
    int32_t user_length
    int connections[LISTENERS_MAX]  # atomic: open now, by their listener


# The common part of the connections of one listener.
cdef struct Listener:
    uint32_t index
    int8_t authenticates          # a connection is to authenticate before its first request
    const Transport* transport    # NULL: the plain one
    void* transport_context
    Session* session              # of those that have not authenticated


cdef enum:
    PEER_ENDED = 2                # Channel.readable: after the bytes the end, which has no edge


# How far a connection has gone, for the holder of a request of it that waits.
cdef enum:
    LEFT_SENDING = 1              # the peer sends no more; it may still read
    LEFT = 2                      # closed: nothing can be answered
    LEFT_ALL = 3                  # and none of its requests is with a handler any more


# A channel's last kind of request: producers have their own times of the states.
cdef enum:
    USE_OTHER = 0
    USE_PRODUCE = 1
    USE_FETCH = 2
    CHANNEL_USES = 3


cdef enum:
    SHAKES_SOON = 1               # among those whose handshake can go on
    SHAKES_FIRST = 2              # its next step is before those of others; see _shaking


cdef struct Channel:
    Channel* next_ready           # in the Processor's ready list
    Channel* older                # least recently active first
    Channel* newer
    Channel* next_closed
    Channel* next_noted           # while the turn's requests are handed over
    Channel* next_throttled
    Channel* shaking_before       # of those whose handshake can go on
    Channel* shaking_after
    Processor* processor
    int fd
    int8_t state                  # ChannelState
    int8_t readable               # the socket may hold bytes (edge-triggered)
    int8_t writable               # the last send did not meet EAGAIN
    int8_t ready                  # in the ready list
    int8_t shakes                 # SHAKES_*
    int8_t closing                # no more reads; ends when what is queued has been sent
    int8_t ended                  # the peer sends no more: ends with its last answer
    int8_t closed                 # socket gone; waits for its requests
    int8_t shared_chunk           # rx is the Processor's shared chunk
    int8_t sends_large            # its last frame did not fit a shared chunk
    int8_t reads_ahead            # what is to be sent next is being read from the disk
    int8_t throttle_due           # a throttle begins when the queue has what was read before it
    int8_t use                    # USE_*
    int8_t receive_wants_write    # its transport receives once the socket can be written
    int8_t send_wants_read        # its transport sends once there is something to read
    int8_t authenticates          # it is to, before it is open
    int32_t frame_bytes_min       # of a size that is acceptable in its state
    int32_t frame_bytes_max
    const Transport* transport    # NULL: the plain one
    void* transport_own
    Session* session              # a reference
    int64_t expires_ns            # then the session is over; 0: it lasts as long as the connection
    int64_t offered_bytes         # to the transport, which asked for them again
    int in_flight                 # requests that have not come back
    uint64_t connection_id
    uint64_t next_request_id
    # Received and not yet parsed.
    Chunk* rx
    uint32_t rx_start
    uint32_t rx_end
    Request* stalled              # complete, and the request queue was full
    # Answers.
    SlotQueue slots               # pipelined and not yet answered
    int32_t cached_frames         # locally processed, their answers not yet sent
    int64_t cached_bytes
    Request* tx_head              # being sent, in order
    Request* tx_tail
    int64_t unsent_bytes          # of answers that wait in memory; see _unsent
    # Book-keeping.
    int64_t last_active_ns
    int64_t state_since_ns        # it is in its state since then
    int64_t waiting_since_ns      # muted, with bytes waiting
    int opening_at                # its place among those that are not open yet
    int64_t opening_since_ns      # it is to be open so long after it
    int64_t opening_bytes         # of the total, for its frames until then
    int64_t throttled_until_ns    # 0: it is not in the Processor's list
    int64_t ended_ns              # our side ended it, and waits for the peer to end its own
    uint32_t listener
    void* ip_entry                # of ConnectionQuotas
    uint8_t local_address[16]
    uint8_t peer_address[16]
    uint16_t local_port
    uint16_t peer_port
    int8_t is_ipv6
    # The request path's own, under its lock, for as long as a request of this channel is lent.
    void* parked                  # the first of its requests that wait
    int8_t left                   # LEFT_SENDING, LEFT, LEFT_ALL
    # The quotas of its last client id: QuotaClient, the quotas' own under their lock.
    void* quotas
    int64_t throttled_in          # RequestChannel.quota_changes when it was throttled


cdef struct NewConnection:
    int fd
    const Listener* listener
    void* ip_entry


cdef enum:
    NEW_CONNECTIONS_MAX = 20      # per Processor, as in Kafka
    WAIT_BUCKETS = 40             # powers of two of microseconds
    TIME_TABLES = API_KEYS_MAX + 1  # the last one is followers' fetches


# How long channels of one listener were muted with bytes waiting; written by the Processor.
cdef struct MutedWaits:
    int64_t connections           # open now
    int64_t waiting               # channels that are so now
    int64_t count
    int64_t sum_ns
    int64_t buckets[WAIT_BUCKETS]


# The parts of a request's time, as Kafka splits it.
cdef enum TimePart:
    TIME_REQUEST_QUEUE = 0
    TIME_LOCAL = 1
    TIME_REMOTE = 2
    TIME_RESPONSE_QUEUE = 3
    TIME_RESPONSE_SEND = 4
    TIME_TOTAL = 5
    TIME_PARTS = 6


# The times of one API's requests, counted by the Processor that sent the answers.
cdef struct RequestTimes:
    int64_t versions[API_VERSIONS_MAX]
    int64_t sum_ns[TIME_PARTS]
    int64_t buckets[TIME_PARTS][KB_TIME_BUCKETS]


cdef struct NetworkSettings:
    int32_t request_bytes_max     # socket.request.max.bytes
    int64_t idle_ns_max           # connections.max.idle.ms
    int64_t opening_ns_max        # from the connection to the end of its authentication
    int64_t opening_bytes_max     # of frames before that, over all connections
    int64_t opening_total         # atomic
    uint64_t draw_key             # of the draws among those that are not open yet
    int32_t pipelined             # channel.pipelining.enable
    int32_t pipelined_requests_max
    int64_t pipelined_bytes_max
    int64_t pipelined_total_max   # channel.pipelining.total.bytes, over all connections
    int64_t pipelined_total       # atomic
    int64_t unsent_max            # queued.max.response.bytes, over all connections
    int64_t unsent_total          # atomic
    int32_t send_buffer_bytes     # -1: the kernel tunes it
    int32_t receive_buffer_bytes
    int32_t connections_max       # max.connections


cdef enum:
    STOP_SEND = 1                # answers leave, for at most a second; then everything is closed
    STOP_AT_ONCE = 2
    STOP_RETIRE = 3               # each connection is closed after its last answer; the rest serve


cdef struct Processor:
    pthread_t thread
    int started
    int index
    NetworkSettings* settings
    RequestChannel* request_channel
    int epoll_fd
    int event_fd
    int stopping                  # atomic: STOP_*
    int ended                     # atomic: the thread is at its end, to be joined
    int sleeping                  # atomic: see _sleep
    int abandoned                 # it ended with requests still lent
    pthread_mutex_t turn          # who holds it is the thread, for all that is the thread's own
    pthread_mutex_t lock          # new connections and answers
    NewConnection new_connections[NEW_CONNECTIONS_MAX]
    int new_count
    Request* answers_head
    Request* answers_tail
    Request* local_head           # locally processed, their answers come later
    int has_long_answers          # among them: not for a handler with the turn
    int64_t unread_since_ns       # atomic: by one of its channels, or before; 0: by none
    # The thread's own.
    Chunk* shared
    Request* free_requests
    int free_count
    Block* free_blocks
    int blocks_made
    int blocks_lent               # of them
    uint8_t* copies               # of short file ranges, on their way; see _send
    Channel* ready_head
    Channel* ready_tail
    Channel* shaking              # the next one whose handshake goes on; see _shaking
    Channel* shaking_last
    Channel* oldest
    Channel* newest
    Channel* closed_head
    Channel* throttled
    Channel** opening             # those that are not open yet; see _opening
    int opening_count
    int opening_room
    uint64_t draws                # among them
    Channel* closed_before_sleep   # the heads of both when it went to sleep: what a lender adds
    Channel* throttled_before_sleep  # is news to it
    Request* batch_head           # complete in this turn, pushed to the queue in one go
    Request* batch_tail
    Channel* noted_head           # their channels, while they are handed over
    Channel* noted_tail
    int64_t now_ns
    int64_t shaken_ns             # the last step of a handshake ended
    int64_t shaken_idle_ns        # idle_ns was so much then
    int64_t compacted_ns
    int64_t looked_ns             # at its requests that are still queued; 0: none is
    # Figures, written in its turn, read by anyone.
    int64_t idle_ns
    int64_t turns                 # of its thread
    int64_t started_ns
    int64_t served_ns             # of the threads that it had before this one
    int64_t connection_count
    int64_t connections_opened
    int64_t requests
    int64_t live_requests         # lent, queued or to be sent
    int64_t received_bytes
    int64_t sent_bytes
    int64_t responses
    int64_t idle_closed
    int64_t protocol_errors
    int64_t closes[CAUSES]
    MutedWaits muted[LISTENERS_MAX]
    int64_t state_ns[CHANNEL_USES][CHANNEL_STATES]  # that channels were in it and have left it
    int64_t trains
    int64_t train_frames
    int64_t turns_lent            # to handlers, while it slept
    int64_t lent_ns               # of this sleep
    RequestTimes* times[TIME_TABLES]  # atomic; by API key, made with its first answer


cdef struct Handler:
    int awake                     # futex word: 1 when woken
    int asleep                    # in the stack of sleepers
    void* slow_file               # it serves what was set aside for this one
    int retired                   # it counts no more, wherever it is; its thread leaves
    int was_aside                 # its last run had been
    int relieved                  # as the taker, and it is not back
    int in_python                 # counted as there, under the request channel's lock
    Handler* below
    int index
    int64_t idle_ns               # asleep with nothing to take
    int64_t runs
    int64_t run_requests
    int64_t cold_requests


cdef enum:
    SLOW_FILES_MAX = 32           # at which handlers are that serve
    BOUNDED_FROM = 4              # handlers: of so many one is left for the queue, whatever waits


# Requests that wait for slow files, and files at which a handler waits. Under the request
# channel's lock.
cdef struct AsideRequests:
    Request* head
    Request* tail
    int64_t count
    int64_t bytes
    void* files[WORKERS_MAX]      # being served, each by one handler, which may be retired
    int64_t since_ns[WORKERS_MAX]
    int file_count
    int retired                   # of their handlers
    int64_t total                 # ever


# Requests that wait until a handler is back from Python. Under the request channel's lock.
cdef struct InPython:
    Request* head
    Request* tail
    int handlers                  # that are there


cdef struct RequestChannel:
    pthread_mutex_t lock
    Request* head
    Request* tail
    int64_t count                 # frames; atomic to be read without the lock
    int64_t bytes
    int32_t count_max             # queued.max.requests
    int64_t bytes_max             # queued.max.request.bytes; below 0: no bound
    Handler* taker                # who takes, or has been woken to
    int64_t run_since_ns          # when it took its run; INT64_MAX: it has yet to
    int64_t relieved              # takers whose run took long
    int standing                  # of them, those that are not back
    AsideRequests aside
    InPython python
    Handler* sleepers             # a stack: the warmest first
    int stalled                   # a Processor waits for room
    int short_runs                # atomic: so many more are short; a run has waited for the disk
    int handler_count             # atomic: those that serve
    int closed
    int called                    # a handler is to come back, though nothing is queued
    # Called by a Processor, without a lock: how far a connection has gone. Set before the threads
    # start; NULL: not wanted.
    void (*on_left)(void* context, Channel* channel, int how) noexcept nogil
    # Serves a request on the thread of its Processor, without waiting; 0: it is to be queued. NULL:
    # all are. Only of the APIs that `at_once` names.
    int (*serve_at_once)(void* context, Processor* processor, Request* request) noexcept nogil
    void* hot_context
    # How long requests were here or were being served by the taker: no handler is idle meanwhile.
    int64_t served_ns
    int64_t serving_since_ns      # 0: nothing is
    int64_t served_until_ns
    int64_t count_peak
    Processor* processors[PROCESSORS_MAX]
    int processor_count           # atomic: it grows
    uint8_t hot[API_KEYS_MAX][API_VERSIONS_MAX]  # api key x version: the hot path takes it
    uint8_t at_once[API_KEYS_MAX]  # api key: may be served on a Processor's thread
    uint8_t flows_back[API_KEYS_MAX]  # taken out of the hot path while we run: `set_cold`
    QuotaTable* quotas            # set before the threads start; NULL: there are none
    int quotas_in_force           # atomic: of which kinds there are some, see _client_quotas
    int64_t quota_changes         # atomic: then all that are throttled are read again
    int8_t throttle_from[API_KEYS_MAX]  # first version that begins with its throttle time; -1 never
    uint8_t between_brokers[API_KEYS_MAX]  # its time is not counted
    int8_t flexible_from[API_KEYS_MAX]  # first version with header v2; -1 never
