# cython: language_level=3
"""TLS as a listener's transport: a SSL object of OpenSSL for each connection, over its socket
(`_tls_socket`).

Place in the flow: `SocketServer.listen` gets a `TlsTransport`, whose operations a Processor calls
in its turn (`_transport`), without the GIL. A connection keeps the certificate that its listener
had when it began; `replace` is for those after it.

What is special:

- OpenSSL reads ahead, so a record that has arrived may wait in it while the socket is empty. A part
  of a record that is all there is does not count as bytes: the rest of it will be announced.
- A peer could keep this thread busy with records that hold no data. A call takes no more than its
  share of bytes from the socket, and a read ends after each message that OpenSSL hands up
  (KeyUpdate), so WANT_READ is an empty socket only if no such message has come. Too many messages
  in a megabyte, or too many bytes for the data in them (requests to renegotiate), end the
  connection.
- A handshake has a bound of bytes, a larger one where clients have certificates.
- A write that did not fit is repeated with the same bytes, which may be elsewhere in memory.
- After a failure nothing may be done with the object but free it.

The thread's queue of errors is emptied before each call: what `error_of` says depends on it.
Failures are kept by reason for the log, since nothing can be logged here.
"""

import socket as _socket

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kbroker.core._lock_order cimport RANK_QUEUE, lock_ranked, unlock_ranked
from kbroker.core._sync cimport pthread_mutex_destroy, pthread_mutex_init
from kbroker.net._listener_transport cimport ListenerTransport
from kbroker.net._openssl cimport (
    CTRL_SET_MESSAGE_OWN, ERROR_WANT_READ, ERROR_WANT_WRITE, ERROR_ZERO_RETURN, OpenSsl, openssl)
from kbroker.net._tls_context cimport TlsContext
from kbroker.net._tls_socket cimport TlsSocket, tls_socket_bio, tls_socket_prepare
from kbroker.net._types cimport (
    PEER_NAME_BYTES_MAX, TRANSPORT_ANSWERED, TRANSPORT_DONE, TRANSPORT_FAILED,
    TRANSPORT_WANTS_READ, TRANSPORT_WANTS_WRITE, Transport)

cdef extern from "socket_io.h" nogil:
    void kb_addresses(int fd, uint8_t* local, unsigned short* local_port, uint8_t* peer,
                      unsigned short* peer_port, signed char* is_ipv6)

cdef enum:
    RECORD_BYTES_MAX = 16 << 10
    RECEIVE_BYTES_MAX = 256 << 10  # of a call: others have their turn
    SHARE_BYTES = 48 << 10        # from the socket, of one read: a record, and what is read ahead
    HANDSHAKE_BYTES_MAX = 64 << 10
    CERTIFICATES_BYTES_MAX = 128 << 10  # beside it, of the client
    # Bytes from the socket for one of data, of the smallest records; and some without data at all.
    BYTES_PER_BYTE_MAX = 64
    BYTES_WITHOUT_DATA_MAX = 64 << 10
    LATE_MESSAGES_MAX = 32
    LATE_MESSAGES_PER_BYTES = 1 << 20
    CONTENT_ALERT = 21
    CONTENT_HANDSHAKE = 22

cdef enum:
    OWN_NONE = 0                  # the reason is OpenSSL's
    OWN_ENDED = 1                 # the client has ended the connection in its handshake
    OWN_LATE_MESSAGES = 2
    OWN_LONG_HANDSHAKE = 3

ENDED = "the client ended the connection during the handshake"
LATE_MESSAGES = "too many KeyUpdate messages, or requests to renegotiate"
LONG_HANDSHAKE = "the handshake has too many bytes"


cdef struct Tls:
    const OpenSsl* library
    TlsListener* listener
    void* ssl
    TlsSocket socket
    int64_t handshake_bytes_max
    int8_t answers                # the client has been sent something of the handshake in this step
    int8_t shaken                 # its handshake is complete
    int8_t failed
    int8_t ended                  # our end has been said
    int8_t has_part               # all that OpenSSL holds is a part of a record
    int late_messages             # that are no data, after the handshake
    int64_t late_bytes            # of data, received since both were counted from 0


cdef void _on_message(
    int sent, int version, int content_type, const void* data, size_t length, void* ssl, void* own
) noexcept nogil:
    cdef Tls* tls = <Tls*>own
    if tls != NULL and sent and content_type == CONTENT_HANDSHAKE:
        tls.answers = 1
    if (tls != NULL and tls.shaken and not sent
            and (content_type == CONTENT_HANDSHAKE or content_type == CONTENT_ALERT)):
        tls.late_messages += 1


cdef int _open(void* context, int fd, void** own) noexcept nogil:
    cdef TlsListener* listener = <TlsListener*>context
    cdef Tls* tls = <Tls*>calloc(1, sizeof(Tls))
    cdef void* bio
    if tls == NULL:
        return -1
    tls.library = openssl()
    tls.listener = listener
    tls.socket.fd = fd
    tls.library.clear_error()
    lock_ranked(&listener.lock, RANK_QUEUE)
    tls.ssl = tls.library.new_ssl(listener.context)
    tls.handshake_bytes_max = listener.handshake_bytes_max
    unlock_ranked(&listener.lock, RANK_QUEUE)
    bio = tls_socket_bio(&tls.socket)
    if tls.ssl == NULL or bio == NULL:
        tls.library.free_bio(bio)
        _close(tls)
        return -1
    tls.library.set_bio(tls.ssl, bio, bio)
    tls.library.control_ssl(tls.ssl, CTRL_SET_MESSAGE_OWN, 0, tls)
    own[0] = tls
    return 0


cdef int _handshake(void* own) noexcept nogil:
    cdef Tls* tls = <Tls*>own
    cdef int done
    tls.socket.share = tls.handshake_bytes_max - tls.socket.received
    tls.answers = 0
    tls.library.clear_error()
    done = tls.library.accept(tls.ssl)
    if done == 1:
        tls.shaken = 1
        tls.socket.received = 0
        return TRANSPORT_DONE
    if tls.socket.share <= 0:
        _fail(tls, OWN_LONG_HANDSHAKE)
        return TRANSPORT_FAILED
    done = _status(tls, done)
    if done == TRANSPORT_WANTS_READ and tls.answers:
        return TRANSPORT_ANSWERED
    return TRANSPORT_FAILED if done == TRANSPORT_DONE else done


cdef int _status(Tls* tls, int returned) noexcept nogil:
    # Of a call that moved nothing. DONE: the peer has ended.
    cdef int error = tls.library.error_of(tls.ssl, returned)
    if error == ERROR_WANT_READ:
        return TRANSPORT_WANTS_READ
    if error == ERROR_WANT_WRITE:
        return TRANSPORT_WANTS_WRITE
    if error == ERROR_ZERO_RETURN and tls.shaken:
        return TRANSPORT_DONE
    _fail(tls, OWN_NONE)
    return TRANSPORT_FAILED


cdef void _fail(Tls* tls, int own) noexcept nogil:
    cdef unsigned long reason = 0
    cdef long verify = 0
    if not tls.failed:
        tls.failed = 1
        if own == OWN_NONE:
            reason = tls.library.get_error()
            verify = tls.library.verify_result(tls.ssl)
        if own == OWN_NONE and reason == 0:
            if tls.shaken:
                return            # a reset, as of any connection
            own = OWN_ENDED
        _note_failure(tls, own, reason, verify)


cdef void _note_failure(Tls* tls, int own, unsigned long reason, long verify) noexcept nogil:
    cdef TlsListener* listener = tls.listener
    cdef TlsFailure* failure
    cdef uint8_t local[16]
    cdef unsigned short port
    cdef int at = 0
    lock_ranked(&listener.lock, RANK_QUEUE)
    while at < listener.failure_count and (
        listener.failures[at].own != own or listener.failures[at].reason != reason
        or listener.failures[at].verify != verify
    ):
        at += 1
    if at < FAILURES_MAX:
        failure = &listener.failures[at]
        if at == listener.failure_count:
            memset(failure, 0, sizeof(TlsFailure))
            failure.own = own
            failure.reason = reason
            failure.verify = verify
            listener.failure_count += 1
        failure.count += 1
        kb_addresses(tls.socket.fd, local, &port, failure.peer, &port, &failure.is_ipv6)
    unlock_ranked(&listener.lock, RANK_QUEUE)


cdef int _floods(const Tls* tls, int got, int64_t taken) noexcept nogil:
    # Whether the peer keeps this thread busy with records that hold no data.
    return (
        tls.late_messages > LATE_MESSAGES_MAX
        or (got <= 0 and tls.socket.share <= 0)
        or tls.socket.received > BYTES_WITHOUT_DATA_MAX
        + (tls.late_bytes + taken) * BYTES_PER_BYTE_MAX
    )


cdef int64_t _receive(void* own, uint8_t* into, int64_t room, int* drained) noexcept nogil:
    cdef Tls* tls = <Tls*>own
    cdef int64_t taken = 0
    cdef int status = TRANSPORT_DONE
    cdef int before
    cdef int got = 0
    if tls.failed:
        return TRANSPORT_FAILED
    room = min(room, <int64_t>RECEIVE_BYTES_MAX)
    tls.has_part = 0
    tls.socket.is_empty = 0
    tls.socket.skips_empty = 0    # the first read of the socket finds its end, too
    while taken < room:
        before = tls.late_messages
        tls.socket.share = SHARE_BYTES
        tls.library.clear_error()
        got = tls.library.read(tls.ssl, into + taken, <int>(room - taken))
        if got > 0:
            taken += got
            tls.socket.skips_empty = 1
        if _floods(tls, got, taken):
            _fail(tls, OWN_LATE_MESSAGES)
            return TRANSPORT_FAILED
        if got > 0:
            if tls.socket.is_empty and not tls.library.has_pending(tls.ssl):
                break
            continue
        status = _status(tls, got)
        if status != TRANSPORT_WANTS_READ or tls.late_messages == before:
            break
    tls.has_part = status == TRANSPORT_WANTS_READ
    if taken == 0:
        return status
    # An end or a failure after them is for the next receive, which says it.
    drained[0] = tls.socket.is_empty and (
        tls.has_part or (got > 0 and not tls.library.has_pending(tls.ssl)))
    tls.late_bytes += taken
    if tls.late_bytes > LATE_MESSAGES_PER_BYTES:
        tls.late_bytes = 0
        tls.late_messages = 0
        tls.socket.received = 0
    return taken


cdef int64_t _send(void* own, const uint8_t* data, int64_t length, int more) noexcept nogil:
    cdef Tls* tls = <Tls*>own
    cdef int sent
    if tls.failed:
        return TRANSPORT_FAILED
    tls.socket.has_more = more or length > RECORD_BYTES_MAX
    tls.library.clear_error()
    sent = tls.library.write(tls.ssl, data, <int>min(length, <int64_t>RECORD_BYTES_MAX))
    tls.socket.has_more = 0
    if sent > 0:
        return sent
    sent = _status(tls, sent)
    return TRANSPORT_FAILED if sent == TRANSPORT_DONE else sent


cdef int _has_bytes(void* own) noexcept nogil:
    cdef Tls* tls = <Tls*>own
    return not tls.failed and not tls.has_part and tls.library.has_pending(tls.ssl)


cdef int _peer_name(void* own, uint8_t** name) noexcept nogil:
    # The subject of the peer's certificate, in DER. Of this SSL object, at this moment.
    cdef Tls* tls = <Tls*>own
    cdef void* certificate = tls.library.peer_certificate(tls.ssl)
    cdef const void* subject
    cdef uint8_t* at
    cdef int length = -1
    if certificate == NULL:
        return 0
    subject = tls.library.subject(certificate)
    length = tls.library.encode_name(subject, NULL)
    if 0 < length <= PEER_NAME_BYTES_MAX:
        at = <uint8_t*>malloc(<size_t>length)
        name[0] = at
        length = -1 if at == NULL else tls.library.encode_name(subject, &at)
    else:
        length = -1
    tls.library.free_certificate(certificate)
    return length


cdef void _end_sending(void* own) noexcept nogil:
    cdef Tls* tls = <Tls*>own
    if tls.shaken and not tls.failed and not tls.ended:
        tls.ended = 1             # a second call would read
        tls.library.clear_error()
        tls.library.shutdown(tls.ssl)


cdef void _close(void* own) noexcept nogil:
    cdef Tls* tls = <Tls*>own
    _end_sending(own)
    if tls.ssl != NULL:
        tls.library.free_ssl(tls.ssl)
    free(tls)


cdef Transport OPERATIONS
OPERATIONS.open = _open
OPERATIONS.handshake = _handshake
OPERATIONS.receive = _receive
OPERATIONS.send = _send
OPERATIONS.has_bytes = _has_bytes
OPERATIONS.peer_name = _peer_name
OPERATIONS.end_sending = _end_sending
OPERATIONS.close = _close


cdef class TlsTransport(ListenerTransport):
    """TLS with a context; `replace` gives another one to connections that come after it."""

    def __cinit__(self, TlsContext context not None):
        pthread_mutex_init(&self.shared.lock, NULL)
        tls_socket_prepare()
        self.operations = &OPERATIONS
        self.context = &self.shared
        self.replace(context)

    def __dealloc__(self):
        pthread_mutex_destroy(&self.shared.lock)

    def replace(self, TlsContext context not None):
        """Connections from now on; those that are open keep theirs."""
        openssl().set_message_callback(context.context, _on_message)
        before = self.tls_context
        with nogil:
            lock_ranked(&self.shared.lock, RANK_QUEUE)
            self.shared.context = context.context
            self.shared.handshake_bytes_max = HANDSHAKE_BYTES_MAX + (
                CERTIFICATES_BYTES_MAX if context.asks_clients else 0)
            unlock_ranked(&self.shared.lock, RANK_QUEUE)
        self.tls_context = context
        del before                # a connection that began with it has a reference

    def take_failures(self):
        """(reason, why the client's certificate was not accepted, count, the last one's address) of
        the connections that have failed since the last look."""
        cdef TlsFailure failures[FAILURES_MAX]
        cdef int count
        cdef int at
        with nogil:
            lock_ranked(&self.shared.lock, RANK_QUEUE)
            count = self.shared.failure_count
            memcpy(failures, self.shared.failures, sizeof(TlsFailure) * <size_t>count)
            self.shared.failure_count = 0
            unlock_ranked(&self.shared.lock, RANK_QUEUE)
        return [
            (_words(&failures[at]), _verify_words(&failures[at]), failures[at].count,
             _host(&failures[at]))
            for at in range(count)
        ]


cdef str _words(const TlsFailure* failure):
    cdef const char* text
    if failure.own == OWN_ENDED:
        return ENDED
    if failure.own == OWN_LATE_MESSAGES:
        return LATE_MESSAGES
    if failure.own == OWN_LONG_HANDSHAKE:
        return LONG_HANDSHAKE
    text = openssl().reason_text(failure.reason)
    return text.decode("ascii", "replace") if text != NULL else f"error {failure.reason}"


cdef str _verify_words(const TlsFailure* failure):
    return (
        openssl().verify_text(failure.verify).decode("ascii", "replace") if failure.verify else "")


cdef str _host(TlsFailure* failure):
    cdef bytes packed = PyBytes_FromStringAndSize(<char*>failure.peer, 16)
    if failure.is_ipv6:
        return _socket.inet_ntop(_socket.AF_INET6, packed)
    return _socket.inet_ntop(_socket.AF_INET, packed[12:])
