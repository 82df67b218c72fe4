# cython: language_level=3
"""An acceptor: one thread per listener, over all its addresses, without the GIL.

It accepts, asks ConnectionQuotas, sets the socket options and offers the connection to the
Processors in turn, leaving out those that are going; more may come at any time. When all their
rings are full it waits (that is the bound: new clients wait in the kernel's backlog). At EMFILE or
ENFILE accepting pauses for half a second and nothing else does.
A connection over a quota is closed at once; one over the rate of its address a little later, and
is not served (`_connection_rates`). Beyond the broker's own rate nothing is accepted for a while.
Polls every 500 ms, as Kafka's does, to see `stopping`.
"""

from libc.errno cimport EMFILE, ENFILE, ENOBUFS, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.unistd cimport close, usleep, write

from kbroker.core._atomics cimport kb_load_int, kb_store_int
from kbroker.core._figures cimport kb_count
from kbroker.core._sync cimport kb_now_ns, pthread_create, pthread_join, pthread_setname_np
from kbroker.net._connection_rates cimport (
    connection_rates_refuse_ms, connection_rates_wait_ms)
from kbroker.net._processor cimport processor_offer
from kbroker.net._processor_lists cimport listener_opens
from kbroker.net._quotas cimport ConnectionQuotas, quota_acquire, quota_opened, quota_release
from kbroker.net._sessions cimport session_drop
from kbroker.net._types cimport Listener, NetworkSettings, NewConnection, Processor

cdef extern from "<stdio.h>" nogil:
    int snprintf(char* text, size_t size, const char* format, ...)

cdef extern from "socket_io.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* fds, unsigned long count, int timeout_ms)
    int eventfd(unsigned int initial, int flags)
    int kb_accept(int listener, uint8_t* peer)
    void kb_configure(int fd, int send_bytes, int receive_bytes)
    enum: POLLIN
    enum: EFD_NONBLOCK
    enum: EFD_CLOEXEC

cdef enum:
    POLL_MS = 500
    PAUSE_MS = 500
    ACCEPTS_PER_TURN = 64
    OFFER_RETRY_US = 500
    NS_PER_MS = 1000000


cdef Acceptor* acceptor_new(
    const Listener* listener, NetworkSettings* settings, ConnectionQuotas* quotas,
    ConnectionRates* rates, Processor** processors, int* processor_count,
) noexcept nogil:
    cdef Acceptor* acceptor = <Acceptor*>calloc(1, sizeof(Acceptor))
    if acceptor == NULL:
        return NULL
    acceptor.listener = listener[0]
    acceptor.settings = settings
    acceptor.quotas = quotas
    acceptor.rates = rates
    acceptor.counts = 1
    acceptor.processors = processors
    acceptor.processor_count = processor_count
    acceptor.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    return acceptor


cdef int acceptor_start(Acceptor* acceptor) noexcept nogil:
    cdef char name[16]
    if pthread_create(&acceptor.thread, NULL, _main, acceptor) != 0:
        return -1
    acceptor.started = 1
    snprintf(name, sizeof(name), "acceptor-%u", acceptor.listener.index)
    pthread_setname_np(acceptor.thread, name)
    return 0


cdef void acceptor_stop(Acceptor* acceptor) noexcept nogil:
    """Closes the listening sockets and joins the thread; call it without the GIL."""
    cdef uint64_t one = 1
    cdef int i
    kb_store_int(&acceptor.stopping, 1)
    write(acceptor.event_fd, &one, 8)
    if acceptor.started:
        pthread_join(acceptor.thread, NULL)
        acceptor.started = 0
    for i in range(acceptor.socket_count):
        close(acceptor.sockets[i])
    acceptor.socket_count = 0


cdef void acceptor_free(Acceptor* acceptor) noexcept nogil:
    if acceptor != NULL:
        session_drop(acceptor.listener.session)
        close(acceptor.event_fd)
        free(acceptor)


cdef void _hand_on(Acceptor* acceptor, NewConnection* connection) noexcept nogil:
    # To the next Processor with room; waits while there is none.
    cdef int64_t since_ns = 0
    cdef int count
    cdef int _try
    while not kb_load_int(&acceptor.stopping):
        count = kb_load_int(acceptor.processor_count)
        for _try in range(count):
            acceptor.next_processor = (acceptor.next_processor + 1) % count
            if processor_offer(acceptor.processors[acceptor.next_processor], connection) == 0:
                if since_ns > 0:
                    kb_count(&acceptor.blocked_ns, kb_now_ns() - since_ns)
                return
        if since_ns == 0:
            since_ns = kb_now_ns()
        usleep(OFFER_RETRY_US)
    close(connection.fd)
    quota_release(connection.ip_entry, listener_opens(connection.listener))


# --- rates ----------------------------------------------------------------------------------------

cdef int64_t _now_ms() noexcept nogil:
    return kb_now_ns() // NS_PER_MS


cdef void _wait(Acceptor* acceptor, int64_t wait_ms) noexcept nogil:
    # For the broker's rate; an end of it does not wait.
    cdef pollfd called
    cdef int64_t until_ms = _now_ms() + wait_ms
    kb_count(&acceptor.waited_ms, wait_ms)
    called.fd = acceptor.event_fd
    called.events = POLLIN
    called.revents = 0
    while wait_ms > 0 and not kb_load_int(&acceptor.stopping):
        poll(&called, 1, <int>wait_ms)
        wait_ms = until_ms - _now_ms()


cdef void _end_first(Acceptor* acceptor) noexcept nogil:
    cdef RefusedConnection* first = &acceptor.waiting[acceptor.waiting_first]
    close(first.fd)
    quota_release(first.ip_entry, 0)
    acceptor.waiting_first = (acceptor.waiting_first + 1) % <int>REFUSED_MAX
    acceptor.waiting_count -= 1


cdef int _end_refused(Acceptor* acceptor, int timeout_ms) noexcept nogil:
    # Closes those whose time is over; how long until the next one's is, at most `timeout_ms`. They
    # wait for about the same time, so one that has to wait longer holds up those after it for less
    # than that.
    cdef int64_t left_ms
    while acceptor.waiting_count > 0:
        left_ms = acceptor.waiting[acceptor.waiting_first].until_ms - _now_ms()
        if left_ms > 0:
            return <int>min(left_ms, <int64_t>timeout_ms)
        _end_first(acceptor)
    return timeout_ms


cdef int _is_over_rate(
    Acceptor* acceptor, NewConnection* connection, const uint8_t* peer
) noexcept nogil:
    # 1: it is not served, and closed later.
    cdef RefusedConnection* place
    cdef int64_t wait_ms
    if acceptor.counts:
        wait_ms = connection_rates_wait_ms(acceptor.rates, _now_ms())
        if wait_ms > 0:
            _wait(acceptor, wait_ms)
    wait_ms = connection_rates_refuse_ms(acceptor.rates, peer, acceptor.counts, _now_ms())
    if wait_ms == 0:
        return 0
    kb_count(&acceptor.refused, 1)
    kb_count(&acceptor.throttled, 1)
    if acceptor.waiting_count == REFUSED_MAX:
        _end_first(acceptor)
    if listener_opens(&acceptor.listener):
        quota_opened(connection.ip_entry)  # it is not to open
    place = &acceptor.waiting[
        (acceptor.waiting_first + acceptor.waiting_count) % <int>REFUSED_MAX]
    place.fd = connection.fd
    place.ip_entry = connection.ip_entry
    place.until_ms = _now_ms() + wait_ms
    acceptor.waiting_count += 1
    return 1


cdef int _accept_some(Acceptor* acceptor, int listener) noexcept nogil:
    # 1 when file descriptors or memory ran out.
    cdef NewConnection connection
    cdef uint8_t peer[16]
    cdef int _turn
    for _turn in range(ACCEPTS_PER_TURN):
        connection.fd = kb_accept(listener, peer)
        if connection.fd < 0:
            return errno == EMFILE or errno == ENFILE or errno == ENOBUFS or errno == ENOMEM
        connection.ip_entry = quota_acquire(
            acceptor.quotas, peer, listener_opens(&acceptor.listener), acceptor.counts)
        if connection.ip_entry == NULL:
            kb_count(&acceptor.refused, 1)
            close(connection.fd)
            continue
        if kb_load_int(&acceptor.rates.in_force) and _is_over_rate(acceptor, &connection, peer):
            continue
        connection.listener = &acceptor.listener
        kb_configure(connection.fd, acceptor.settings.send_buffer_bytes,
                     acceptor.settings.receive_buffer_bytes)
        kb_count(&acceptor.accepted, 1)
        _hand_on(acceptor, &connection)
    return 0


cdef void* _main(void* argument) noexcept nogil:
    cdef Acceptor* acceptor = <Acceptor*>argument
    cdef pollfd fds[SOCKETS_MAX + 1]
    cdef int paused = 0
    cdef int i
    memset(fds, 0, sizeof(fds))
    fds[0].fd = acceptor.event_fd
    fds[0].events = POLLIN
    for i in range(acceptor.socket_count):
        fds[i + 1].fd = acceptor.sockets[i]
        fds[i + 1].events = POLLIN
    while not kb_load_int(&acceptor.stopping):
        if paused:
            kb_count(&acceptor.paused, 1)
            poll(fds, 1, PAUSE_MS)
            paused = 0
            continue
        if poll(fds, <unsigned long>(acceptor.socket_count + 1),
                _end_refused(acceptor, POLL_MS)) <= 0:
            continue
        for i in range(acceptor.socket_count):
            if fds[i + 1].revents and _accept_some(acceptor, acceptor.sockets[i]):
                paused = 1
    while acceptor.waiting_count > 0:
        _end_first(acceptor)
    return NULL
