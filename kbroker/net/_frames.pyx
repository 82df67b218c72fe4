# cython: language_level=3
"""Frames out of a socket's bytes: receive chunks, sizes, trains.

    frames_receive  one receive into the Processor's shared chunk, or into the channel's own
    frames_next     the complete frame at the front, or a train of Produce frames

Small frames share the Processor's receive chunk; a frame that does not fit gets a chunk of its own,
which grows with the bytes that have really arrived, so that an announced size costs nothing. One of
a megabyte is moved once, as long as a few KB of it are there. Bytes after a frame stay where they
are until the channel is readable again.

A train ends at any other API or version, at 32 frames or 256 KB, and at the channel's own bound.
Every function runs on the Processor's thread; none of them closes anything: the channel does, by
the status. A size below the shortest header or above `socket.request.max.bytes` is FRAMES_BAD; so
is, before a channel has authenticated, one above AUTHENTICATION_BYTES_MAX.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from kbroker._state cimport AUTHENTICATING, HANDSHAKING
from kbroker.core._atomics cimport kb_add_i64, kb_load_int
from kbroker.core._figures cimport kb_count
from kbroker.core._limits cimport TRAIN_BYTES_MAX, TRAIN_FRAMES_MAX
from kbroker.core._live_objects cimport LIVE_CHUNKS, LIVE_FRAME_COPIES, live_add
from kbroker.net._request cimport (
    chunk_acquire,
    chunk_new,
    chunk_release,
    request_new,
)
from kbroker.net._request_channel cimport api_is_hot, request_is_hot
from kbroker.net._required cimport channel_requires
from kbroker.net._transport cimport transport_receive, transport_wants
from kbroker.net._types cimport (
    AUTHENTICATION, AUTHENTICATION_BYTES_MAX, CAUSE_EXPIRED, CAUSE_FRAME_SIZE, CAUSE_OPENING,
    CAUSE_OPENING_BYTES, CAUSE_TLS_HELLO, NO_API_KEY, PEER_ENDED, PEER_NAME, TRANSPORT_WANTS_READ,
    TRANSPORT_WANTS_WRITE, Channel, Chunk, NetworkSettings, Processor, Request)
from kbroker.protocol._versions cimport API_PRODUCE, API_SASL_AUTHENTICATE, API_SASL_HANDSHAKE

cdef enum:
    FRAME_HEADER_BYTES = 8        # api key, version, correlation id: every header begins so
    SHARED_CHUNK_BYTES = 256 << 10
    SHARED_ROOM_MIN_BYTES = 16 << 10
    # What an announced size may reserve before bytes come: a batch of max.message.bytes' default
    # in its request, which then stays where it was received.
    OWN_CHUNK_FIRST_BYTES = (1 << 20) + (64 << 10)
    LARGE_HEAD_BYTES = 4 << 10    # received of a large frame before it has a chunk of its own
    RECEIVE_BYTES_MAX = 256 << 10
    TLS_HANDSHAKE = 0x16          # the first bytes of a ClientHello: 0x16, 0x03, 0x00 to 0x03
    TLS_MAJOR = 3
    TLS_MINOR_MAX = 3


cdef int64_t _frame_need(Channel* channel) noexcept nogil:
    # Bytes of the frame at the front with its size; 0: not known yet, -1: not acceptable.
    cdef uint8_t* data
    cdef int32_t size
    if channel.rx == NULL or channel.rx_end - channel.rx_start < 4:
        return 0
    data = channel.rx.data + channel.rx_start
    size = <int32_t>((<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16)
                     | (<uint32_t>data[2] << 8) | data[3])
    if size < channel.frame_bytes_min or size > channel.frame_bytes_max:
        return -1
    return <int64_t>size + 4


cdef Chunk* _shared_chunk(Processor* processor) noexcept nogil:
    # The Processor's chunk with room for a read; started afresh when no request points into it.
    cdef Chunk* chunk = processor.shared
    if chunk != NULL:
        if kb_load_int(&chunk.refs) == 1:
            chunk.filled_bytes = 0
        if chunk.capacity_bytes - chunk.filled_bytes >= SHARED_ROOM_MIN_BYTES:
            return chunk
        live_add(LIVE_CHUNKS, 1)  # from now on it is its requests'
        chunk_release(chunk)
    processor.shared = chunk_new(SHARED_CHUNK_BYTES)
    if processor.shared != NULL:
        live_add(LIVE_CHUNKS, -1)
    return processor.shared


cdef int _own_chunk(Channel* channel, int64_t need) noexcept nogil:
    # Moves what has arrived of a frame to a chunk of its own; doubles towards the frame's size.
    cdef uint32_t have = channel.rx_end - channel.rx_start
    cdef int64_t capacity = 2 * <int64_t>have
    cdef Chunk* chunk
    if capacity < OWN_CHUNK_FIRST_BYTES and not _is_opening(channel):
        capacity = OWN_CHUNK_FIRST_BYTES
    if need > 0 and capacity > need:
        capacity = need
    if need == 0 or capacity < SHARED_ROOM_MIN_BYTES:
        capacity = SHARED_ROOM_MIN_BYTES
    if capacity <= have:          # several frames, or most of one: all of it, and room to go on
        capacity = <int64_t>have + SHARED_ROOM_MIN_BYTES
    if _is_opening(channel) and not _may_have(channel, capacity):
        return FRAMES_REFUSED
    chunk = chunk_new(<uint32_t>capacity)
    if chunk == NULL:
        return FRAMES_BAD
    memcpy(chunk.data, channel.rx.data + channel.rx_start, have)
    chunk_release(channel.rx)
    channel.rx = chunk
    channel.rx_start = 0
    channel.rx_end = have
    channel.shared_chunk = 0
    return FRAMES_GOT


cdef inline int _is_opening(const Channel* channel) noexcept nogil:
    return channel.frame_bytes_min < FRAME_HEADER_BYTES


cdef int _may_have(Channel* channel, int64_t capacity) noexcept nogil:
    # Any client may come so far. What each needs for short frames is its own in any case, so that
    # those that send long ones shut out no other.
    cdef NetworkSettings* settings = channel.processor.settings
    cdef int64_t counted = max(<int64_t>0, capacity - SHARED_ROOM_MIN_BYTES)
    cdef int64_t more = counted - channel.opening_bytes
    if kb_add_i64(&settings.opening_total, more) > settings.opening_bytes_max and more > 0:
        kb_add_i64(&settings.opening_total, -more)
        kb_count(&channel.processor.closes[CAUSE_OPENING_BYTES], 1)
        return 0
    channel.opening_bytes = counted
    return 1


cdef int64_t _make_room(Channel* channel) noexcept nogil:
    # Room to read into after rx_end; below 1: the connection must end, -FramesStatus says why.
    cdef Processor* processor = channel.processor
    cdef int64_t need = _frame_need(channel)
    cdef int64_t room
    cdef int status = FRAMES_GOT
    if need < 0:
        return -FRAMES_BAD
    if channel.rx == NULL:
        channel.rx = _shared_chunk(processor)
        if channel.rx == NULL:
            return -FRAMES_BAD
        chunk_acquire(channel.rx)
        channel.shared_chunk = 1
        channel.rx_start = channel.rx.filled_bytes
        channel.rx_end = channel.rx_start
    elif channel.shared_chunk:
        # Only the last reader of the shared chunk may go on in place.
        room = channel.rx.capacity_bytes - channel.rx_end
        if (
            channel.rx != processor.shared
            or channel.rx.filled_bytes != channel.rx_end
            or room + (channel.rx_end - channel.rx_start) < need
            or room == 0
        ):
            status = _own_chunk(channel, need)
    elif channel.rx_end == channel.rx.capacity_bytes:
        status = _own_chunk(channel, need)
    if status != FRAMES_GOT:
        return -status
    room = channel.rx.capacity_bytes - channel.rx_end
    if not channel.shared_chunk:
        return room
    # Who sent a large frame sends another: it is not to be moved once most of it is there.
    return min(room, <int64_t>(
        LARGE_HEAD_BYTES if channel.sends_large and need == 0 else RECEIVE_BYTES_MAX))


cdef int frames_receive(Channel* channel) noexcept nogil:
    """One receive into the room after what has arrived."""
    cdef Processor* processor = channel.processor
    cdef int64_t room = _make_room(channel)
    cdef int64_t got
    cdef int drained = 0
    if room < 1:
        return FRAMES_REFUSED if room == -FRAMES_REFUSED else FRAMES_BAD
    if not channel_requires(channel, channel.rx_start <= channel.rx_end
                            and channel.rx_end + room <= channel.rx.capacity_bytes,
                            "frames: there is room for a read", channel.rx_end + room,
                            channel.rx.capacity_bytes):
        return FRAMES_GONE
    got = transport_receive(channel, channel.rx.data + channel.rx_end, room, &drained)
    if got > 0:
        if drained and channel.readable != PEER_ENDED:
            channel.readable = 0
        channel.rx_end += <uint32_t>got
        if channel.shared_chunk:
            channel.rx.filled_bytes = channel.rx_end
        kb_count(&processor.received_bytes, got)
        return FRAMES_GOT
    if got == TRANSPORT_WANTS_READ or got == TRANSPORT_WANTS_WRITE:
        transport_wants(channel, got)
        _drop_empty_rx(channel)
        return FRAMES_NONE
    return FRAMES_ENDED if got == 0 else FRAMES_GONE


cdef int frames_bad_cause(const Channel* channel) noexcept nogil:
    cdef const uint8_t* at
    if channel.transport == NULL and channel.rx != NULL and channel.rx_end - channel.rx_start >= 3:
        at = channel.rx.data + channel.rx_start
        if at[0] == TLS_HANDSHAKE and at[1] == TLS_MAJOR and at[2] <= TLS_MINOR_MAX:
            return CAUSE_TLS_HELLO
    return CAUSE_FRAME_SIZE


cdef void frames_drop(Channel* channel) noexcept nogil:
    """What has arrived of a frame will never be whole."""
    channel.rx_start = channel.rx_end
    _drop_empty_rx(channel)


cdef void _drop_empty_rx(Channel* channel) noexcept nogil:
    # An idle connection holds no receive memory.
    if channel.rx != NULL and channel.rx_start == channel.rx_end:
        chunk_release(channel.rx)
        channel.rx = NULL
        channel.rx_start = 0
        channel.rx_end = 0
        channel.shared_chunk = 0


cdef int frames_compact(Channel* channel) noexcept nogil:
    """A slow peer's part of a frame must not hold a whole shared chunk: it gets a small one."""
    cdef int status = FRAMES_GOT
    if channel.rx != NULL and channel.shared_chunk:
        status = _own_chunk(channel, 0)
    # Without memory it stays where it is.
    return FRAMES_REFUSED if status == FRAMES_REFUSED else FRAMES_GOT


cdef int16_t _api_key(uint8_t* frame) noexcept nogil:
    return <int16_t>((<uint32_t>frame[0] << 8) | frame[1])


cdef int16_t _api_version(uint8_t* frame) noexcept nogil:
    return <int16_t>((<uint32_t>frame[2] << 8) | frame[3])


cdef void frames_bound(Channel* channel) noexcept nogil:
    """The sizes that are acceptable in its state. A frame of authentication may be empty."""
    cdef int32_t request_bytes_max = channel.processor.settings.request_bytes_max
    if channel.state == HANDSHAKING or channel.state == AUTHENTICATING:
        channel.frame_bytes_min = 0
        channel.frame_bytes_max = min(request_bytes_max, <int32_t>AUTHENTICATION_BYTES_MAX)
    else:
        channel.frame_bytes_min = FRAME_HEADER_BYTES
        channel.frame_bytes_max = request_bytes_max


cdef inline Request* _begin(Channel* channel, int64_t need, int compact) noexcept nogil:
    # A request of the frame at the front.
    cdef Request* request = request_new(channel.processor, compact)
    if request == NULL:
        return NULL
    request.channel = channel
    request.request_id = channel.next_request_id
    channel.next_request_id += 1
    request.frames = 1
    request.data = channel.rx.data + channel.rx_start + 4
    request.length_bytes = <uint32_t>(need - 4)
    request.chunk = channel.rx
    chunk_acquire(channel.rx)
    request.received_ns = channel.processor.now_ns
    return request


cdef inline int _end(
    Channel* channel, Request* request, uint32_t end, Request** taken
) noexcept nogil:
    request.total_bytes = end - channel.rx_start
    channel.rx_start = end
    _drop_empty_rx(channel)
    kb_count(&channel.processor.requests, request.frames)
    taken[0] = request
    return FRAMES_GOT


cdef int _next_of_authentication(
    Channel* channel, int64_t need, Request** taken
) noexcept nogil:
    cdef Request* request = _begin(channel, need, 1)
    if request == NULL:
        return FRAMES_GONE
    request.kind = AUTHENTICATION
    request.api_key = NO_API_KEY
    return _end(channel, request, channel.rx_start + <uint32_t>need, taken)


cdef int frames_peer_name(Channel* channel, Request** taken) noexcept nogil:
    cdef Processor* processor = channel.processor
    cdef Request* request
    cdef uint8_t* name = NULL
    cdef int length = 0
    if channel.transport.peer_name != NULL:
        length = channel.transport.peer_name(channel.transport_own, &name)
    if length <= 0:
        return FRAMES_NONE if length == 0 else FRAMES_GONE
    request = request_new(processor, 1)
    if request == NULL:
        free(name)
        return FRAMES_GONE
    request.kind = PEER_NAME
    request.api_key = NO_API_KEY
    request.channel = channel
    request.request_id = channel.next_request_id
    channel.next_request_id += 1
    request.frames = 1
    request.detached = name
    live_add(LIVE_FRAME_COPIES, 1)
    request.data = name
    request.length_bytes = <uint32_t>length
    request.total_bytes = <uint32_t>length + 4
    request.received_ns = processor.now_ns
    kb_count(&processor.requests, 1)
    taken[0] = request
    return FRAMES_GOT


cdef int frames_next(Channel* channel, Request** taken) noexcept nogil:
    """The complete frame at the front, or a train of Produce frames, as a request."""
    cdef Processor* processor = channel.processor
    cdef int64_t need = _frame_need(channel)
    cdef Request* request
    cdef uint8_t* frame
    cdef uint32_t end
    if need < 0:
        return FRAMES_BAD
    if need == 0 or channel.rx_end - channel.rx_start < need:
        return FRAMES_NONE
    if not channel_requires(channel, channel.rx_end <= channel.rx.capacity_bytes,
                            "frames: what has arrived is in its chunk", channel.rx_end,
                            channel.rx.capacity_bytes):
        return FRAMES_GONE
    if _is_opening(channel):
        # Here, too: of a client that sends them fast a handler nearly always has one.
        if processor.now_ns - channel.opening_since_ns > processor.settings.opening_ns_max:
            kb_count(&processor.closes[CAUSE_OPENING], 1)
            return FRAMES_LATE
        return _next_of_authentication(channel, need, taken)
    frame = channel.rx.data + channel.rx_start + 4
    if channel.expires_ns != 0 and _is_late(channel, _api_key(frame)):
        kb_count(&processor.closes[CAUSE_EXPIRED], 1)
        return FRAMES_LATE
    request = _begin(channel, need, not api_is_hot(
        processor.request_channel, _api_key(frame), _api_version(frame)))
    if request == NULL:
        return FRAMES_GONE
    request.api_key = _api_key(frame)
    request.api_version = _api_version(frame)
    request.correlation_id = <int32_t>(
        (<uint32_t>frame[4] << 24) | (<uint32_t>frame[5] << 16)
        | (<uint32_t>frame[6] << 8) | frame[7])
    end = channel.rx_start + <uint32_t>need
    if (
        request.api_key == API_PRODUCE and processor.settings.pipelined
        and request_is_hot(processor.request_channel, request)
    ):
        end = _extend_train(channel, request, end)
    channel.sends_large = need > SHARED_CHUNK_BYTES
    return _end(channel, request, end, taken)


cdef int _is_late(const Channel* channel, int16_t api_key) noexcept nogil:
    # Looked at when a request comes, as by Apache Kafka. One that renews the session may be late.
    return (
        channel.processor.now_ns > channel.expires_ns
        and api_key != API_SASL_HANDSHAKE and api_key != API_SASL_AUTHENTICATE
    )


cdef uint32_t _extend_train(Channel* channel, Request* request, uint32_t end) noexcept nogil:
    # Further complete Produce frames of the same version right after the first.
    cdef uint32_t start = channel.rx_start
    cdef int64_t need
    cdef int room = channel.processor.settings.pipelined_requests_max - channel.cached_frames
    if room > TRAIN_FRAMES_MAX:
        room = TRAIN_FRAMES_MAX
    while request.frames < room:
        channel.rx_start = end
        need = _frame_need(channel)
        if (
            need <= 0
            or channel.rx_end - end < need
            or end + need - start > TRAIN_BYTES_MAX
            or memcmp(channel.rx.data + end + 4, request.data, 4) != 0
        ):
            break
        request.frames += 1
        end += <uint32_t>need
    channel.rx_start = start
    if request.frames > 1:
        kb_count(&channel.processor.trains, 1)
        kb_count(&channel.processor.train_frames, request.frames)
    return end
