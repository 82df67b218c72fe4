# cython: language_level=3
"""The network core as Python sees it: a SocketServer, and the requests that Python must answer.

The work is done by the units in net/: acceptor and processor threads without the GIL, the request
queue, channels, sends. This face builds them, starts and stops them and reads their figures.

Threads: a SocketServer is built, started and stopped by the thread that starts the broker.
Everything that may wait for a C lock or a C thread releases the GIL first.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

import socket as _socket
import threading

from heapq import nsmallest

from kbroker._state import State
from kbroker.clock import let_go_of_gil
from kbroker.limits import (
    OPENING_BYTES_MAX, OPENING_MAX, OPENING_MS_MAX, OPENING_PER_IP_MAX)
from kbroker.net._listening import listening_socket
from kbroker.net._sessions import connections as session_connections
from kbroker.net._wrapped_request import WrappedRequest  # no-cython-lint: a name of this face

from kbroker.core._atomics cimport kb_load_i64, kb_load_int, kb_store_i64, kb_store_int
from kbroker.core._figures cimport kb_figure
from kbroker.core._keyed_hash cimport kb_random_key
from kbroker.core._limits cimport PROCESSORS_MAX
from kbroker.core._lock_order cimport RANK_QUEUE, lock_ranked, unlock_ranked
from kbroker.core._sync cimport kb_give_back_memory, kb_now_ns, kb_tune_malloc
from kbroker.core._table cimport Table
from kbroker.net._acceptor cimport (
    SOCKETS_MAX,
    acceptor_free,
    acceptor_new,
    acceptor_start,
    acceptor_stop,
)
from kbroker.net._connection_rates cimport (
    address_limit_put,
    address_limits_free,
    connection_rates_bound,
    connection_rates_free,
    connection_rates_limit,
    connection_rates_new,
    connection_rates_window,
)
from kbroker.net._processor cimport (
    processor_free,
    processor_has_retired,
    processor_is_serving,
    processor_join,
    processor_new,
    processor_notify,
    processor_retire,
    processor_start,
    processor_start_again,
    processor_stop,
)
from kbroker.net._quotas cimport quotas_bound, quotas_free, quotas_new, quotas_override
from kbroker.net._listener_transport cimport ListenerTransport
from kbroker.net._request_channel cimport request_channel_close, request_channel_init
from kbroker.net._sessions cimport session_drop, session_intern
from kbroker.net._types cimport (
    API_KEYS_MAX,
    API_VERSIONS_MAX,
    CAUSE_AUTHENTICATION,
    CAUSE_EXPIRED,
    CAUSE_FRAME_SIZE,
    CAUSE_HANDSHAKE,
    CAUSE_HEADER,
    CAUSE_INVARIANT,
    CAUSE_MALFORMED,
    CAUSE_NOT_TAKEN,
    CAUSE_NO_MEMORY,
    CAUSE_CROWDED,
    CAUSE_OPENING_BYTES,
    CAUSE_OPENING,
    CAUSE_SILENT_ERROR,
    CAUSE_STATE,
    CAUSE_TLS_HELLO,
    CAUSE_UNREAD,
    LISTENERS_MAX,
    USE_FETCH,
    USE_OTHER,
    USE_PRODUCE,
    WAIT_BUCKETS,
    Listener,
    MutedWaits,
    Processor,
)
from kbroker.quota._client_quotas cimport ClientQuotas
from kbroker.quota._quota_table cimport QUOTA_REQUEST

cdef enum:
    EACH_PAUSE = 200              # rows of a list

UNREAD = (
    "answers that were not read, where those of all connections reached queued.max.response.bytes;"
    " have clients read what they ask for, or raise it"
)
_CLOSE_CAUSES = {
    CAUSE_MALFORMED: "a Produce or Fetch that does not parse",
    CAUSE_SILENT_ERROR: "an error in a Produce with acks=0",
    CAUSE_NO_MEMORY: "no memory for an answer, or one longer than a frame can be",
    CAUSE_FRAME_SIZE: "a frame size out of bounds",
    CAUSE_STATE: "an event out of turn",
    CAUSE_HEADER: "a request header that does not parse",
    CAUSE_UNREAD: UNREAD,
    CAUSE_INVARIANT: "a broken invariant; standard error names it",
    CAUSE_HANDSHAKE: "a handshake that failed",
    CAUSE_AUTHENTICATION: "an authentication that failed",
    CAUSE_EXPIRED: "a session that was over",
    CAUSE_NOT_TAKEN: "no memory for a connection, or a transport that did not open",
    CAUSE_TLS_HELLO: (
        "TLS on a listener that does not speak it; have the client connect to a listener with TLS,"
        " or set its security.protocol to that of the listener"),
    CAUSE_OPENING: "a handshake or an authentication that took too long",
    CAUSE_CROWDED: (
        "one of them where more than kbroker.max.unauthenticated.connections had not"
        " authenticated; raise it if these were clients of yours"),
    CAUSE_OPENING_BYTES: (
        "long frames of more clients at a time than may send them before they have authenticated"),
}

_USES = {USE_PRODUCE: "Produce", USE_FETCH: "Fetch", USE_OTHER: "other"}

kb_tune_malloc()


def give_back_memory() -> None:
    """Free memory that the allocator keeps goes back to the kernel."""
    with nogil:
        kb_give_back_memory()


cdef class SocketServer:
    """One per broker: per listener an acceptor thread, N processor threads, one request queue."""

    def __cinit__(
        self, *, int processors, int queued_requests_max, long long queued_bytes_max,
        int request_bytes_max, long long idle_ms_max, int connections_max,
        int connections_per_ip_max, bint pipelined, int pipelined_requests_max,
        long long pipelined_bytes_max, long long pipelined_total_bytes_max,
        long long unsent_bytes_max, int send_buffer_bytes, int receive_buffer_bytes,
        int opening_ms_max=OPENING_MS_MAX, int opening_max=OPENING_MAX,
        int opening_per_ip_max=OPENING_PER_IP_MAX, int opening_bytes_max=OPENING_BYTES_MAX,
        draw_key=None,
    ):
        if not 1 <= processors <= PROCESSORS_MAX:
            raise ValueError(
                f"num.network.threads must be 1 to {PROCESSORS_MAX}, not {processors}")
        self.listeners = []
        self.transports = []
        self.resizing = threading.Lock()
        self.settings.request_bytes_max = request_bytes_max
        self.settings.idle_ns_max = idle_ms_max * 1000000
        self.settings.opening_ns_max = opening_ms_max * <int64_t>1000000
        self.settings.opening_bytes_max = opening_bytes_max
        self.settings.draw_key = kb_random_key() if draw_key is None else draw_key
        self.settings.pipelined = pipelined
        self.settings.pipelined_requests_max = pipelined_requests_max
        self.settings.pipelined_bytes_max = pipelined_bytes_max
        self.settings.pipelined_total_max = pipelined_total_bytes_max
        self.settings.unsent_max = unsent_bytes_max
        self.settings.send_buffer_bytes = send_buffer_bytes
        self.settings.receive_buffer_bytes = receive_buffer_bytes
        self.settings.connections_max = connections_max
        request_channel_init(&self.channel)
        self.channel.count_max = queued_requests_max
        self.channel.bytes_max = queued_bytes_max
        self.quotas = quotas_new(connections_per_ip_max, connections_max)
        self.rates = connection_rates_new()
        if self.quotas == NULL or self.rates == NULL:
            raise MemoryError
        self.quotas.opening_max = opening_max
        self.quotas.opening_per_ip_max = opening_per_ip_max
        for _index in range(processors):
            self._add_processor()

    def __dealloc__(self):
        cdef int i
        if self.started:
            return                # threads still use it all; the process is about to end
        for i in range(self.acceptor_count):
            acceptor_free(self.acceptors[i])
        for i in range(self.processor_count):
            processor_free(self.processors[i])
        quotas_free(self.quotas)
        connection_rates_free(self.rates)

    cdef int _add_processor(self) except -1:
        # Seen by acceptors and handlers from the last two lines on.
        cdef int index = self.processor_count
        cdef Processor* processor = processor_new(index, &self.settings, &self.channel)
        if processor == NULL:
            raise OSError("cannot make an epoll set: raise the open-file limit (ulimit -n)")
        if self.started and processor_start(processor) != 0:
            processor_free(processor)
            raise OSError("cannot start a network thread: raise the limit (ulimit -u)")
        self.processors[index] = processor
        self.channel.processors[index] = processor
        kb_store_int(&self.channel.processor_count, index + 1)
        kb_store_int(&self.processor_count, index + 1)
        return 0

    def resize(self, int processors):
        """num.network.threads: so many Processors take connections from now on.

        Does not wait: the connections of one that is taken away are closed after their answers by
        its own thread, which then ends. A stop begins after it. OSError when a thread or an epoll
        set cannot be had, and then there are fewer than asked for.
        """
        if not 1 <= processors <= PROCESSORS_MAX:
            raise ValueError(f"num.network.threads must be 1 to {PROCESSORS_MAX}")
        with self.resizing:
            if not self.closing:  # else no client connects any more
                self._resize(processors)

    cdef int _resize(self, int processors) except -1:
        cdef int index
        cdef int serving = 0
        cdef int failed
        for index in range(self.processor_count):
            serving += processor_is_serving(self.processors[index])
        for index in range(self.processor_count - 1, -1, -1):
            if serving > processors and processor_is_serving(self.processors[index]):
                with nogil:
                    processor_retire(self.processors[index])
                serving -= 1
        for index in range(self.processor_count):
            if serving < processors and processor_has_retired(self.processors[index]):
                with nogil:
                    failed = self._start_again(self.processors[index])
                if failed:
                    raise OSError("cannot start a network thread: raise the limit (ulimit -u)")
                serving += 1
        while serving < processors and self.processor_count < PROCESSORS_MAX:
            self._add_processor()
            serving += 1
        return 0

    cdef int _start_again(self, Processor* processor) noexcept nogil:
        if self.started:
            return processor_start_again(processor)
        kb_store_int(&processor.ended, 0)
        kb_store_int(&processor.stopping, 0)
        return 0

    def bound_connections(self, int total, int per_ip, dict overrides):
        """max.connections, max.connections.per.ip and its overrides, for new connections."""
        with nogil:
            quotas_bound(self.quotas, per_ip, total)
        for address, bound in overrides.items():
            self.override_connections(address, bound)

    def override_connections(self, str address, int bound):
        """max.connections.per.ip.overrides: `bound` connections from this IP address."""
        cdef bytes packed = _packed(address)
        cdef const uint8_t* at = <const uint8_t*>packed
        with nogil:
            quotas_override(self.quotas, at, bound)

    def set_hot(self, int api_key, int min_version, int max_version):
        """These versions go to the hot path; everything else goes to Python."""
        cdef int version
        if not (0 <= api_key < API_KEYS_MAX and 0 <= min_version <= max_version < API_VERSIONS_MAX):
            raise ValueError(f"no such API versions: {api_key} {min_version}-{max_version}")
        for version in range(min_version, max_version + 1):
            self.channel.hot[api_key][version] = 1

    def set_cold(self, int api_key):
        """From the next request on this API goes to Python; those in service are not moved."""
        cdef int version
        if not 0 <= api_key < API_KEYS_MAX:
            raise ValueError(f"no such API: {api_key}")
        for version in range(API_VERSIONS_MAX):
            self.channel.hot[api_key][version] = 0
        self.channel.flows_back[api_key] = 1

    def bound_connection_rate(self, double rate):
        """max.connection.creation.rate: so many connections a second from now on; below 0: any."""
        with nogil:
            connection_rates_bound(self.rates, rate)

    def limit_connection_rates(self, double every, dict named):
        """Connections a second from each address, and from those that have a rate of their own;
        `every` below 0: as many as they like."""
        cdef Table limits
        cdef bytes packed
        memset(&limits, 0, sizeof(limits))
        try:
            for address, rate in named.items():
                packed = _packed(address)
                if address_limit_put(&limits, <const uint8_t*>packed, rate) != 0:
                    raise MemoryError
        except BaseException:
            address_limits_free(&limits)
            raise
        with nogil:
            connection_rates_limit(self.rates, every, &limits)

    def use_quotas(self, ClientQuotas quotas not None):
        """Whose quotas its clients have; once, before it starts."""
        self.client_quotas = quotas
        self.channel.quotas = quotas.table
        if connection_rates_window(self.rates, &quotas.table.windows[QUOTA_REQUEST]) != 0:
            raise MemoryError

    def quotas_changed(self):
        """After `load`: they are in force, and clients that wait for old ones are read again."""
        cdef int index
        kb_store_int(&self.channel.quotas_in_force, kb_load_int(&self.channel.quotas.in_force))
        kb_store_i64(&self.channel.quota_changes, self.channel.quota_changes + 1)
        with nogil:
            for index in range(kb_load_int(&self.processor_count)):
                processor_notify(self.processors[index])

    def set_throttle_from(self, int api_key, int version):
        """Answers of this and later versions begin with their throttle time."""
        if not 0 <= api_key < API_KEYS_MAX:
            raise ValueError(f"no such API: {api_key}")
        self.channel.throttle_from[api_key] = <signed char>min(version, 127)

    def set_between_brokers(self, int api_key):
        """The time of its requests is not charged."""
        if 0 <= api_key < API_KEYS_MAX:
            self.channel.between_brokers[api_key] = 1

    def set_flexible_from(self, int api_key, int version):
        """Request header v2 and response header v1 begin at this version (KIP-482)."""
        if not 0 <= api_key < API_KEYS_MAX:
            raise ValueError(f"no such API: {api_key}")
        self.channel.flexible_from[api_key] = <signed char>min(version, 127)

    def listen(
        self, str name, list addresses, int backlog=50, frozenset ipv4_ports=frozenset(),
        *, principal, ListenerTransport transport=None, bint authenticates=False,
        bint counts=True,
    ):
        """Binds one listener to all its (host, port) and returns what it bound; OSError as is.

        An empty host and :: mean every address, of IPv4 and of IPv6; :: beside an address of IPv4
        is IPv6 alone, as on `ipv4_ports`, where other listeners have one. Port 0: a free port for
        all addresses. `backlog` connections wait in the kernel (see net.core.somaxconn).
        `principal`: of a client that has not authenticated; hashable. `transport`: another than the
        plain one. `authenticates`: the first frames of a connection come as requests that say so,
        until one of them opens the channel. `counts`: its connections are among those of
        `bound_connection_rate`.
        """
        cdef Acceptor* acceptor
        cdef Listener listener
        if self.acceptor_count == LISTENERS_MAX or len(addresses) > SOCKETS_MAX:
            raise ValueError(f"at most {LISTENERS_MAX} listeners of {SOCKETS_MAX} addresses")
        sockets = []
        bound = []
        beside_ipv4 = any([host and ":" not in host for host, _ in addresses])
        try:
            for host, port in addresses:
                if port == 0 and bound:
                    port = bound[0][1]
                opened = listening_socket(
                    host, port, backlog, beside_ipv4 or port in ipv4_ports)
                sockets.append(opened)
                bound.append(opened.getsockname()[:2])
        except BaseException:
            for opened in sockets:
                opened.close()
            raise
        listener.index = <uint32_t>self.acceptor_count
        listener.authenticates = authenticates
        listener.session = session_intern(principal)
        listener.transport = NULL
        listener.transport_context = NULL
        if transport is not None:
            listener.transport = transport.operations
            listener.transport_context = transport.context
            self.transports.append(transport)
        acceptor = acceptor_new(
            &listener, &self.settings, self.quotas, self.rates, self.processors,
            &self.processor_count)
        if acceptor == NULL:
            session_drop(listener.session)
            raise MemoryError
        acceptor.counts = counts
        for opened in sockets:
            acceptor.sockets[acceptor.socket_count] = opened.detach()
            acceptor.socket_count += 1
        self.acceptors[self.acceptor_count] = acceptor
        self.acceptor_count += 1
        self.listeners.append(name)
        return bound

    def start(self):
        """Starts the processors, then the acceptors; OSError, and then none of them runs."""
        cdef int i
        try:
            with self.resizing:
                self.started = True
                for i in range(self.processor_count):
                    if (processor_is_serving(self.processors[i])
                            and processor_start(self.processors[i]) != 0):
                        raise OSError("cannot start a network thread: raise the limit (ulimit -u)")
            for i in range(self.acceptor_count):
                if acceptor_start(self.acceptors[i]) != 0:
                    raise OSError("cannot start an acceptor thread: raise the limit (ulimit -u)")
        except OSError:
            self.stop(at_once=True)
            raise

    def stop_accepting(self):
        """Closes the listening sockets and joins the acceptors."""
        cdef int i
        with self.resizing:
            self.closing = True
        for i in range(self.acceptor_count):
            with nogil:
                acceptor_stop(self.acceptors[i])

    def stop(self, bint at_once=False):
        """Ends the processors: answers on their way are sent first, unless `at_once`."""
        cdef int i
        self.stop_accepting()
        if self.started:
            with nogil:
                for i in range(self.processor_count):
                    processor_stop(self.processors[i], at_once)
                for i in range(self.processor_count):
                    processor_join(self.processors[i])
        self.close_queue()
        self.started = False

    def close_queue(self):
        """Handlers leave once the queue is empty."""
        with nogil:
            request_channel_close(&self.channel)

    def closes(self):
        """Connections that this side has ended since the start, by the reason in words."""
        return {
            text: sum([
                kb_figure(&self.processors[i].closes[cause])
                for i in range(self.processor_count)])
            for cause, text in _CLOSE_CAUSES.items()
        }

    def connections_by_principal(self, int most):
        """(listener, principal as text, open connections), most connections first, and of how many
        pairs these are. One that has not authenticated yet is the listener's own principal's."""
        counts = {}
        for principal, at, count in _in_pieces(session_connections(len(self.listeners))):
            key = (self.listeners[at], str(principal))
            counts[key] = counts.get(key, 0) + count
        rows = ((listener, name, count) for (listener, name), count in counts.items())
        return nsmallest(most, _in_pieces(rows), key=_most_first), len(counts)

    def statistics(self):
        """Figures of the network core as a dict; counters since the start."""
        cdef int64_t now_ns = kb_now_ns()
        cdef int64_t queued, queued_bytes, peak, relieved, set_aside
        with nogil:
            lock_ranked(&self.channel.lock, RANK_QUEUE)
            queued = self.channel.count
            queued_bytes = self.channel.bytes
            peak = self.channel.count_peak
            relieved = self.channel.relieved
            set_aside = self.channel.aside.total
            unlock_ranked(&self.channel.lock, RANK_QUEUE)
        return {
            "processors": [
                _processor_statistics(
                    self.processors[i], self.listeners, now_ns) for i in range(self.processor_count)
            ],
            "acceptors": [
                {
                    "name": f"kafka-socket-acceptor-{self.listeners[i]}",
                    "listener": self.listeners[i],
                    "accepted": kb_figure(&self.acceptors[i].accepted),
                    "refused": kb_figure(&self.acceptors[i].refused),
                    "throttled": kb_figure(&self.acceptors[i].throttled),
                    "waited_ms": kb_figure(&self.acceptors[i].waited_ms),
                    "paused": kb_figure(&self.acceptors[i].paused),
                    "blocked_ns": kb_figure(&self.acceptors[i].blocked_ns),
                }
                for i in range(self.acceptor_count)
            ],
            "pipelined_bytes": kb_load_i64(&self.settings.pipelined_total),
            "unsent_bytes": kb_load_i64(&self.settings.unsent_total),
            "queued_requests": queued,
            "queued_bytes": queued_bytes,
            "queued_requests_peak": peak,
            "takers_relieved": relieved,
            "requests_set_aside": set_aside,
        }


cdef bytes _packed(str address):
    # 16 bytes, of IPv4 as IPv4-mapped.
    family = _socket.AF_INET6 if ":" in address else _socket.AF_INET
    cdef bytes packed = _socket.inet_pton(family, address)
    return b"\0" * 10 + b"\xff\xff" + packed if len(packed) == 4 else packed


def _in_pieces(rows):
    """Each row, with a pause after each piece: long lists delay no request."""
    for number, row in enumerate(rows, start=1):
        yield row
        if number % EACH_PAUSE == 0:
            let_go_of_gil()


def _most_first(row):
    return -row[2], row[0], row[1]


cdef dict _processor_statistics(Processor* processor, list listeners, int64_t now_ns):
    waits = [_muted_statistics(&processor.muted[at]) for at in range(len(listeners))]
    return {
        "name": f"kafka-network-thread-{processor.index}",
        "connections": kb_figure(&processor.connection_count),
        "connections_opened": kb_figure(&processor.connections_opened),
        "requests": kb_figure(&processor.requests),
        "live_requests": kb_figure(&processor.live_requests),
        "responses": kb_figure(&processor.responses),
        "received_bytes": kb_figure(&processor.received_bytes),
        "sent_bytes": kb_figure(&processor.sent_bytes),
        "idle_closed": kb_figure(&processor.idle_closed),
        "protocol_errors": kb_figure(&processor.protocol_errors),
        "unread_closed": kb_figure(&processor.closes[CAUSE_UNREAD]),
        "trains": kb_figure(&processor.trains),
        "train_frames": kb_figure(&processor.train_frames),
        "turns_lent": kb_figure(&processor.turns_lent),
        "idle_ns": kb_figure(&processor.idle_ns),
        "turns": kb_figure(&processor.turns),
        "serving": bool(processor_is_serving(processor)),
        "alive_ns": max(kb_figure(&processor.served_ns) + now_ns
                        - kb_figure(&processor.started_ns), 1),
        "muted_waits": sum([found["count"] for found in waits]),
        "listeners": dict(zip(listeners, waits)),
        "state_ns": _state_statistics(processor),
    }


cdef dict _state_statistics(Processor* processor):
    cdef int use, state
    found = {}
    for use in _USES:
        for state in range(len(State)):
            if kb_figure(&processor.state_ns[use][state]) > 0:
                found[_USES[use], State(state).name] = kb_figure(&processor.state_ns[use][state])
    return found


cdef dict _muted_statistics(MutedWaits* waits):
    return {
        "connections": kb_figure(&waits.connections),
        "waiting": kb_figure(&waits.waiting),
        "count": kb_figure(&waits.count),
        "sum_ns": kb_figure(&waits.sum_ns),
        "histogram_us": [kb_figure(&waits.buckets[at]) for at in range(WAIT_BUCKETS)],
    }
