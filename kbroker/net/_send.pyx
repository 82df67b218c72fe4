# cython: language_level=3
"""Answers to the socket: consecutive bytes gathered into one call, file ranges by sendfile.

Called by the channel in its Processor's turn. A head in front of a file range is corked with
MSG_MORE, so that both leave in one segment; what the socket does not take now is resumed where it
stopped, also in the middle of a range. A range that ends before its promised length means that a
file was cut under a promise: the connection must end, since the announced size is already out.
Where there is no sendfile, ranges are copied.

A short range with something after it is copied into the Processor's own memory and leaves in the
same call: two calls for each range, and a segment more, cost more than the copy. The part that
the socket does not take stays a range.

Through a transport that is not the plain one all bytes go in pieces: the front of the queue, ranges
too, is copied together, so that short answers leave in one piece, and is given to the transport as
often as that takes some of it. What it wants to be given again is the same bytes, since nothing
else comes to the front. It gets a sign that more follows at once, so that packets can be full.

A range that is not in memory, or was seen there more than a second ago, is not for this thread to
wait for: a request of its own, READ_AHEAD, goes where requests for slow files are set aside, and a
handler reads the next piece, so that it is in memory when it is sent. Only this channel waits.
"""

from libc.errno cimport EAGAIN, EINTR, EINVAL, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from posix.unistd cimport close, pread

from kbroker.core._figures cimport kb_count
from kbroker.net._request cimport request_free, request_new
from kbroker.net._request_channel cimport request_channel_set_aside
from kbroker.net._required cimport channel_requires, part_is_sound
from kbroker.net._types cimport (
    NO_API_KEY, READ_AHEAD, TRANSPORT_WANTS_READ, TRANSPORT_WANTS_WRITE, Channel, Part, Processor,
    Request)

cdef extern from "socket_io.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t kb_send_vector(int fd, iovec* vector, int count, int more)
    ssize_t kb_send_file(int fd, int file, int64_t position, size_t length)

cdef extern from "fcntl.h" nogil:
    int F_DUPFD_CLOEXEC
    int fcntl(int fd, int command, ...)

cdef extern from "page_cache.h" nogil:
    int64_t kb_pread_warm(int fd, void* data, size_t length, int64_t position)

cdef enum:
    VECTOR_MAX = 64
    COPIED_RANGE_BYTES_MAX = 32 << 10
    COPIES_BYTES = 128 << 10      # of one call
    PIECE_BYTES_MAX = 64 << 10    # copied at once for a transport: some records of TLS
    PIECE_COST = 4                # of a turn's bytes: to encrypt one takes as long as to send some
    RANGE_BYTES_MAX = 1 << 20     # of one sendfile call, and read ahead
    WARM_NS = 1000000000          # what was in memory is taken to be there still

sends.send_file = kb_send_file


cdef int _gather(Channel* channel, iovec* vector, int* more, int64_t* total) noexcept nogil:
    # The bytes at the front of the queue, up to the first file range that is not copied. -1: what
    # is there cannot be sent.
    cdef Request* request = channel.tx_head
    cdef Part* part
    cdef int count = 0
    cdef int64_t copied = 0
    cdef int i
    more[0] = 0
    total[0] = 0
    while request != NULL:
        for i in range(request.part_next, request.part_count):
            part = &request.parts[i]
            if count == VECTOR_MAX:
                return count
            if not part_is_sound(channel, part):
                return -1
            if part.fd >= 0:
                if not _copy(channel, request, part, copied):
                    more[0] = 1
                    return count
                vector[count].iov_base = channel.processor.copies + copied
                copied += part.length
            else:
                vector[count].iov_base = part.data
            vector[count].iov_len = <size_t>part.length
            total[0] += part.length
            count += 1
        request = request.next
    return count


cdef void _advance(Channel* channel, int64_t sent) noexcept nogil:
    # Marks so many bytes as sent, from the front of the queue.
    cdef Request* request = channel.tx_head
    cdef Part* part
    while request != NULL:
        while request.part_next < request.part_count:
            part = &request.parts[request.part_next]
            if sent < part.length:
                if part.fd >= 0:
                    part.position += sent
                else:
                    part.data += sent
                part.length -= sent
                return
            sent -= part.length
            _part_done(request, part)
        request = request.next


cdef void _part_done(Request* request, Part* part) noexcept nogil:
    if part.keeper != NULL:
        part.release(part.keeper)
        part.keeper = NULL
    request.part_next += 1


cdef int _is_warm(Channel* channel, Request* request, Part* part) noexcept nogil:
    cdef int64_t seen_ns = request.warmed_ns if request.warmed_ns != 0 else request.completed_ns
    return (part.position < part.warm_until
            and channel.processor.now_ns - seen_ns < <int64_t>WARM_NS)


cdef int _copy(Channel* channel, Request* request, Part* part, int64_t copied) noexcept nogil:
    # After the bytes copied already. 0: the range is for sendfile.
    cdef Processor* processor = channel.processor
    if (
        part.length > COPIED_RANGE_BYTES_MAX
        or part.length > COPIES_BYTES - copied
        or (part == &request.parts[request.part_count - 1] and request.next == NULL)
        or not _is_warm(channel, request, part)
    ):
        return 0
    if processor.copies == NULL and not _has_copies(processor):
        return 0
    return kb_pread_warm(
        part.fd, processor.copies + copied, <size_t>part.length, part.position) == part.length


cdef int _has_copies(Processor* processor) noexcept nogil:
    if processor.copies == NULL:
        processor.copies = <uint8_t*>malloc(COPIES_BYTES)
    return processor.copies != NULL


cdef int _read_ahead(
    Channel* channel, Part* part, int64_t position, int64_t length
) noexcept nogil:
    # 0: it cannot be, so the range is sent as it is.
    cdef Request* request = request_new(channel.processor, 0)
    cdef Part* piece
    if request == NULL:
        return 0
    request.kind = READ_AHEAD
    request.api_key = NO_API_KEY
    request.channel = channel
    request.frames = 1
    piece = &request.parts[0]
    # The channel may close meanwhile, and let go of the file.
    piece.fd = fcntl(part.fd, F_DUPFD_CLOEXEC, 0)
    piece.position = position
    piece.length = min(length, <int64_t>RANGE_BYTES_MAX)
    piece.keeper = NULL
    if piece.fd >= 0 and request_channel_set_aside(
        channel.processor.request_channel, request, part.keeper, NULL, 1
    ):
        channel.in_flight += 1
        channel.reads_ahead = 1
        return 1
    if piece.fd >= 0:
        close(piece.fd)
    request_free(request)
    return 0


cdef void send_read_ahead_done(Channel* channel, Request* request) noexcept nogil:
    cdef Part* piece = &request.parts[0]
    cdef Part* part
    close(piece.fd)
    channel.reads_ahead = 0
    if not channel.closed and channel.tx_head != NULL:
        part = &channel.tx_head.parts[channel.tx_head.part_next]
        if part.keeper == request.slow_file and part.position == piece.position:
            part.warm_until = part.position + piece.length
            channel.tx_head.warmed_ns = channel.processor.now_ns
        # Else it is of bytes that the transport is to be given again, however warm they are.
    request_free(request)


cdef ssize_t _send_copy(Channel* channel, const Part* part, int64_t want) noexcept nogil:
    # For a file system or a sandbox without sendfile: as much as is copied at once. It is not
    # remembered, since a call that is refused costs much less than the copy.
    cdef iovec vector
    cdef ssize_t got
    if not _has_copies(channel.processor):
        return -1
    while True:
        got = pread(part.fd, channel.processor.copies, <size_t>min(want, <int64_t>COPIES_BYTES),
                    part.position)
        if got >= 0 or errno != EINTR:
            break
    if got <= 0:
        return got
    vector.iov_base = channel.processor.copies
    vector.iov_len = <size_t>got
    return kb_send_vector(channel.fd, &vector, 1, got < part.length)


cdef int _send_range(Channel* channel, Request* request, int64_t* budget_bytes) noexcept nogil:
    cdef Part* part = &request.parts[request.part_next]
    cdef int64_t want = part.length if part.length < RANGE_BYTES_MAX else RANGE_BYTES_MAX
    cdef ssize_t sent
    if not _is_warm(channel, request, part):
        if _read_ahead(channel, part, part.position, want):
            return SEND_READS
    elif want > part.warm_until - part.position:
        want = part.warm_until - part.position
    sent = sends.send_file(channel.fd, part.fd, part.position, <size_t>want)
    if sent < 0 and (errno == EINVAL or errno == ENOSYS or errno == EOPNOTSUPP):
        sent = _send_copy(channel, part, want)
    if sent < 0:
        return SEND_BLOCKED if errno == EAGAIN else SEND_FAILED
    if sent == 0 and part.length > 0:
        return SEND_FAILED
    part.position += sent
    part.length -= sent
    kb_count(&channel.processor.sent_bytes, sent)
    budget_bytes[0] -= sent
    if part.length == 0:
        _part_done(request, part)
    return SEND_DONE


cdef int64_t _range_into(
    Channel* channel, Request* request, Part* part, int64_t done, int64_t at, int64_t length,
    int waits
) noexcept nogil:
    # Copies what follows the first `done` bytes of a range to `at` in the piece. 0: it is not in
    # memory, and the caller does not wait.
    cdef int64_t position = part.position + done
    cdef uint8_t* into = channel.processor.copies + at
    cdef int64_t got
    if waits:
        got = pread(part.fd, into, <size_t>length, position)
        return got if got > 0 else -1
    if at < channel.offered_bytes:  # it has been there
        length = min(length, channel.offered_bytes - at)
    elif position >= part.warm_until or not _is_warm(channel, request, part):
        return 0
    else:
        length = min(length, part.warm_until - position)
    got = kb_pread_warm(part.fd, into, <size_t>length, position)
    if got < 0 and errno == EAGAIN:
        return 0
    return got if got > 0 else -1


cdef int _copy_piece(Channel* channel, int64_t* copied, int* more) noexcept nogil:
    # The front of the queue. SEND_DONE: it can be sent; `more`: and what follows, too.
    cdef Request* request = channel.tx_head
    cdef Part* part
    cdef int64_t taken
    cdef int64_t done             # of this part
    cdef int waits = 0
    cdef int i
    copied[0] = 0
    more[0] = 0
    while request != NULL:
        for i in range(request.part_next, request.part_count):
            part = &request.parts[i]
            if not part_is_sound(channel, part):
                return SEND_FAILED
            done = 0
            while done < part.length and copied[0] < PIECE_BYTES_MAX:
                taken = min(part.length - done, PIECE_BYTES_MAX - copied[0])
                if part.fd < 0:
                    memcpy(channel.processor.copies + copied[0], part.data + done, <size_t>taken)
                else:
                    taken = _range_into(channel, request, part, done, copied[0], taken, waits)
                    if taken < 0:
                        return SEND_FAILED
                    if taken == 0:
                        if copied[0] > 0 and copied[0] >= channel.offered_bytes:
                            return SEND_DONE
                        if _read_ahead(channel, part, part.position + done, part.length - done):
                            return SEND_READS
                        waits = 1  # nothing can read it ahead
                copied[0] += taken
                done += taken
            if copied[0] == PIECE_BYTES_MAX:
                more[0] = done < part.length and (
                    part.fd < 0 or part.position + done < part.warm_until)
                return SEND_DONE
        request = request.next
    return SEND_DONE


cdef int send_piece(Channel* channel, int64_t* budget_bytes) noexcept nogil:
    """A piece of the queue, which must not be empty, through a transport that is not plain."""
    cdef int64_t length
    cdef int64_t done = 0
    cdef int64_t sent = 0
    cdef int more
    cdef int status
    if not _has_copies(channel.processor):
        return SEND_FAILED
    status = _copy_piece(channel, &length, &more)
    if status != SEND_DONE:
        return status
    if not channel_requires(channel, length >= channel.offered_bytes,
                            "channel: a transport is given again what it was offered", length,
                            channel.offered_bytes):
        return SEND_FAILED
    more = more and budget_bytes[0] > length * PIECE_COST
    while done < length:
        sent = channel.transport.send(
            channel.transport_own, channel.processor.copies + done, length - done, more)
        if sent <= 0:
            break
        if not channel_requires(channel, sent <= length - done,
                                "channel: a transport takes what it is given", sent,
                                length - done):
            return SEND_FAILED
        done += sent
    if not channel.readable and channel.transport.has_bytes(channel.transport_own):
        channel.readable = 1      # the send has received them, so no event may announce them
    if done < length and sent != TRANSPORT_WANTS_READ and sent != TRANSPORT_WANTS_WRITE:
        return SEND_FAILED
    channel.offered_bytes = length - done
    kb_count(&channel.processor.sent_bytes, done)
    budget_bytes[0] -= done * PIECE_COST
    _advance(channel, done)
    if done == length:
        return SEND_DONE
    channel.send_wants_read = sent == TRANSPORT_WANTS_READ
    return SEND_BLOCKED


cdef int send_some(Channel* channel, int64_t* budget_bytes) noexcept nogil:
    """One system call's worth of the queue, which must not be empty."""
    cdef iovec vector[VECTOR_MAX]
    cdef int more
    cdef int64_t total
    cdef ssize_t sent
    cdef int count = _gather(channel, vector, &more, &total)
    if count < 0:
        return SEND_FAILED
    if count == 0:
        return _send_range(channel, channel.tx_head, budget_bytes)
    sent = kb_send_vector(channel.fd, vector, count, more)
    if sent < 0:
        return SEND_BLOCKED if errno == EAGAIN else SEND_FAILED
    kb_count(&channel.processor.sent_bytes, sent)
    budget_bytes[0] -= sent
    if not channel_requires(channel, sent <= total, "channel: no more was sent than there was",
                            sent, total):
        return SEND_FAILED
    _advance(channel, sent)
    return SEND_DONE if sent == total else SEND_BLOCKED
