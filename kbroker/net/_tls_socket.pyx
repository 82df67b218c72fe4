# cython: language_level=3
"""The socket under a connection's TLS: a BIO of OpenSSL whose calls are ours.

Place in the flow: `_tls_transport` gives one to each SSL object, and sets what a call may do before
it calls OpenSSL.

What OpenSSL's own BIO of sockets cannot do:

- A short read says that the socket is empty, so no call is needed that finds nothing. After the
  first data of a receive no further one is tried (`skips_empty`): the next byte is a new edge.
- A call reads no more than its `share`, whatever records come, though OpenSSL may read on by itself
  after some that are no data.
- Records that follow one another leave in one segment: with `has_more` the kernel waits for the
  next (MSG_MORE).
- A write to a connection that was reset raises no SIGPIPE.

In the Processor's turn, without the GIL. Source: BIO_meth_new(3), BIO_s_socket(3).
"""

from libc.errno cimport EAGAIN, errno

cdef extern from "socket_io.h" nogil:
    ssize_t kb_recv(int fd, void* data, size_t length)
    ssize_t kb_send(int fd, const void* data, size_t length, int more)

from kbroker.net._openssl cimport (
    BIO_CTRL_EOF, BIO_CTRL_FLUSH, BIO_KIND_SOURCE_SINK, BIO_RETRY, BIO_RETRY_READ, BIO_RETRY_WRITE,
    OpenSsl, openssl)

# Both constant once they are made.
cdef void* _method = NULL         # a BIO_METHOD
cdef const OpenSsl* _library = NULL


cdef int tls_socket_prepare() except -1:
    global _library, _method
    cdef const OpenSsl* library = openssl()
    cdef void* made
    if _method != NULL:
        return 0
    made = library.new_bio_method(library.new_bio_kind() | BIO_KIND_SOURCE_SINK, b"kbroker socket")
    if (
        made == NULL
        or library.set_bio_read(made, _read) != 1
        or library.set_bio_write(made, _write) != 1
        or library.set_bio_control(made, _control) != 1
    ):
        raise MemoryError("OpenSSL has no memory for a BIO")
    _library = library
    _method = made
    return 0


cdef void* tls_socket_bio(TlsSocket* socket) noexcept nogil:
    cdef void* bio = _library.new_bio(_method)
    if bio != NULL:
        _library.set_bio_data(bio, socket)
        _library.set_bio_init(bio, 1)
    return bio


cdef int _read(void* bio, char* into, int room) noexcept nogil:
    cdef TlsSocket* socket = <TlsSocket*>_library.bio_data(bio)
    cdef ssize_t got = -1
    _library.clear_bio_flags(bio, BIO_RETRY)
    if socket.share > 0 and not (socket.is_empty and socket.skips_empty):
        got = kb_recv(socket.fd, into, <size_t>room)
        if got < 0 and errno != EAGAIN:
            return -1
        socket.is_empty = got < room
    if got > 0:
        socket.share -= got
        socket.received += got
    elif got == 0:
        socket.peer_ended = 1
    else:
        _library.set_bio_flags(bio, BIO_RETRY_READ)
    return <int>got


cdef int _write(void* bio, const char* data, int length) noexcept nogil:
    cdef TlsSocket* socket = <TlsSocket*>_library.bio_data(bio)
    cdef ssize_t sent
    _library.clear_bio_flags(bio, BIO_RETRY)
    sent = kb_send(socket.fd, data, <size_t>length, socket.has_more)
    if sent < 0 and errno == EAGAIN:
        _library.set_bio_flags(bio, BIO_RETRY_WRITE)
    return <int>sent


cdef long _control(void* bio, int what, long number, void* own) noexcept nogil:
    if what == BIO_CTRL_FLUSH:
        return 1
    if what == BIO_CTRL_EOF:
        return (<TlsSocket*>_library.bio_data(bio)).peer_ended
    return 0
