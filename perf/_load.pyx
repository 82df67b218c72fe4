# cython: language_level=3
"""The load generator and the limit server, as Python sees them.

The work is in perf/native: perf_engine.h runs one load on one thread, perf_limit_loop.h serves one
limit server. This unit copies a perf.spec.Run into C structures, lets go of the GIL, and hands the
counters back. `Load` owns the C run: prepared in __init__, freed in __dealloc__; `go` may be called
once, from any thread, and `stop` from any other.
"""

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

import os

cdef extern from "perf_crc32c.h" nogil:
    ctypedef struct pc_shift:
        pass
    void pc_init()
    uint32_t pc_crc32c(const uint8_t *p, size_t n)

cdef extern from "perf_histogram.h" nogil:
    int PH_SUB_BITS
    int PH_BUCKETS
    ctypedef struct ph_histogram:
        uint64_t counts[1]
        uint64_t total
        uint64_t sum
        uint64_t min
        uint64_t max
    int ph_bucket(uint64_t value)

cdef extern from "perf_engine.h" nogil:
    ctypedef struct pl_slot:
        int32_t partition
        int32_t next_sequence
        int64_t last_offset
        int64_t expected_offset
        int64_t fetch_offset
        int64_t start_offset
        int64_t end_offset

    ctypedef struct pl_batch:
        uint32_t at
        uint32_t bytes
        int32_t records
        int32_t slot
        uint32_t crc
        int32_t stamp_at
        const pc_shift *after_sequence
        const pc_shift *after_stamp

    ctypedef struct pl_conn:
        pl_batch *batches
        int idempotent
        pl_slot *slots
        uint8_t topic[272]
        int topic_bytes

    ctypedef struct pl_stream:
        int role
        int version
        int acks
        int in_flight_max
        int coalesce
        int first_conn
        int n_conns
        double interval_ns
        int64_t send_limit
        int32_t max_wait_ms
        int32_t min_bytes
        int32_t max_bytes
        int32_t partition_max_bytes
        int tail
        int session
        int isolation
        int stamped
        uint32_t uniform_bytes
        int32_t uniform_records
        uint32_t verify_every
        int64_t sent
        int64_t answered
        int64_t records_all
        int64_t requests
        int64_t records
        int64_t bytes
        int64_t verified_batches
        int64_t errors
        int32_t first_error
        ph_histogram latency
        ph_histogram end_to_end

    ctypedef struct pl_run:
        pl_stream *streams
        pl_conn *conns
        uint32_t address
        uint16_t port
        int32_t broker_pid
        int64_t warm_ns
        int64_t warm_requests
        int64_t window_ns
        int64_t window_requests
        int64_t window_bytes
        int64_t window_records
        int64_t stall_ns
        int stop
        int64_t wall_ns
        int64_t broker_cpu_ns
        int64_t own_cpu_ns
        char failure[256]

    int PW_BATCH_SEQUENCE
    pl_run *pl_new(int n_streams, int n_conns)
    int pl_conn_prepare(pl_run *run, int index, int stream, const uint8_t *frame,
                        uint32_t frame_bytes, int n_batches, int n_slots)
    const pc_shift *pl_shift_for(pl_run *run, uint64_t zero_bytes)
    int pl_go(pl_run *run)
    void pl_free(pl_run *run)

cdef extern from "perf_limit_loop.h" nogil:
    int pm_serve(int listen_fd, const char *directory)
    void pm_topic_key(const uint8_t *name, size_t n, uint8_t *key)

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char *text, void *to)

HISTOGRAM_SUB_BITS = PH_SUB_BITS
HISTOGRAM_BUCKETS = PH_BUCKETS
_ROLES = {"produce": 0, "fetch": 1, "repeat": 2}

pc_init()


class LoadError(Exception):
    """The run could not be carried through; no figure of it may be used."""


def crc32c(data: bytes) -> int:
    """The generator's own CRC-32C."""
    cdef const uint8_t[::1] view = data
    return pc_crc32c(&view[0], <size_t> view.shape[0]) if view.shape[0] else 0


def bucket_of(value: int) -> int:
    """The histogram bucket that C puts a value in."""
    return ph_bucket(<uint64_t> value)


def limit_topic_id(name: str) -> bytes:
    """The id under which the limit server knows a topic's name."""
    cdef uint8_t key[16]
    cdef bytes raw = name.encode()
    pm_topic_key(<const uint8_t *> <const char *> raw, <size_t> len(raw), key)
    return (<char *> key)[:16]


def serve_limit(listen_fd: int, directory: str) -> None:
    """Serve as the limit until the process is ended."""
    cdef bytes path = os.fsencode(directory)
    cdef const char *c_path = path
    cdef int fd = listen_fd, status
    with nogil:
        status = pm_serve(fd, c_path)
    raise OSError(errno, f"the limit server could not begin ({status})")


cdef dict _histogram(ph_histogram *h):
    return {
        "counts": (<char *> h.counts)[:PH_BUCKETS * sizeof(uint64_t)],
        "total": h.total, "sum": h.sum, "min": h.min, "max": h.max,
    }


cdef class Load:
    """One run of the load generator."""

    cdef pl_run *_run
    cdef int _n_streams
    cdef bint _gone

    def __cinit__(self):
        self._run = NULL
        self._gone = False

    def __init__(self, spec):
        cdef int n_conns = sum(len(stream.connections) for stream in spec.streams)
        cdef bytes host = spec.host.encode()
        if self._run != NULL or not spec.streams or not n_conns:
            raise ValueError("a load needs streams with connections, once")
        self._n_streams = len(spec.streams)
        self._run = pl_new(self._n_streams, n_conns)
        if self._run == NULL:
            raise MemoryError
        if inet_pton(2, host, &self._run.address) != 1:
            raise ValueError(f"{spec.host}: not an IPv4 address")
        self._run.port = spec.port
        self._run.broker_pid = spec.broker_pid
        self._run.warm_ns = int(spec.warm_s * 1e9)
        self._run.warm_requests = spec.warm_requests
        self._run.window_ns = int(spec.window_s * 1e9)
        self._run.window_requests = spec.window_requests
        self._run.window_bytes = spec.window_bytes
        self._run.window_records = spec.window_records
        self._run.stall_ns = int(spec.stall_s * 1e9)
        at = 0
        for number, stream in enumerate(spec.streams):
            self._fill_stream(number, stream, at)
            for connection in stream.connections:
                self._fill_connection(at, number, stream, connection)
                at += 1

    cdef _fill_stream(self, int number, stream, int first_conn):
        cdef pl_stream *s = &self._run.streams[number]
        s.role = _ROLES[stream.role]
        s.version = stream.version
        s.acks = stream.acks
        s.in_flight_max = stream.in_flight
        s.coalesce = stream.coalesce
        s.first_conn = first_conn
        s.n_conns = len(stream.connections)
        s.interval_ns = 1e9 / stream.rate if stream.rate else 0.0
        s.send_limit = stream.send_limit
        s.max_wait_ms = stream.max_wait_ms
        s.min_bytes = stream.min_bytes
        s.max_bytes = stream.max_bytes
        s.partition_max_bytes = stream.partition_max_bytes
        s.tail = stream.tail
        s.session = stream.session
        s.isolation = stream.isolation
        s.stamped = stream.stamped_at
        s.uniform_bytes = stream.uniform_bytes
        s.uniform_records = stream.uniform_records
        s.verify_every = stream.verify_every
        if s.in_flight_max < 1 or (s.role == 1 and s.in_flight_max != 1) or s.verify_every < 1:
            raise ValueError("in_flight is 1 or more (a fetch: 1), verify_every 1 or more")

    cdef _fill_connection(self, int index, int number, stream, connection):
        cdef pl_conn *conn
        cdef pl_batch *batch
        cdef pl_slot *slot
        cdef bytes frame = connection.frame
        cdef bytes topic = connection.topic
        if pl_conn_prepare(self._run, index, number, <const uint8_t *> <const char *> frame,
                           <uint32_t> len(frame), len(connection.batches),
                           len(connection.partitions)):
            raise MemoryError
        conn = &self._run.conns[index]
        conn.idempotent = connection.idempotent
        if <size_t> len(topic) > sizeof(conn.topic):
            raise ValueError("the topic's name is too long")
        memcpy(conn.topic, <const char *> topic, <size_t> len(topic))
        conn.topic_bytes = len(topic)
        for i, partition in enumerate(connection.partitions):
            slot = &conn.slots[i]
            slot.partition = partition.index
            slot.next_sequence = partition.next_sequence
            slot.last_offset = -1
            slot.expected_offset = partition.expected_offset
            slot.fetch_offset = partition.fetch_offset
            slot.start_offset = partition.start_offset
            slot.end_offset = partition.end_offset
        for i, item in enumerate(connection.batches):
            if item.slot >= len(connection.partitions) or item.at + item.size > len(frame):
                raise ValueError("a batch lies outside of its frame")
            batch = &conn.batches[i]
            batch.at = item.at
            batch.bytes = item.size
            batch.records = item.records
            batch.slot = item.slot
            batch.crc = item.crc
            batch.stamp_at = item.stamp_at
            batch.after_sequence = pl_shift_for(self._run, item.size - PW_BATCH_SEQUENCE - 4)
            if batch.after_sequence == NULL:
                raise MemoryError
            if item.stamp_at >= 0:
                batch.after_stamp = pl_shift_for(self._run, item.size - item.stamp_at - 8)
                if batch.after_stamp == NULL:
                    raise MemoryError

    def go(self):
        """Run to the end. Counters of the window, or LoadError."""
        cdef int status
        if self._gone:
            raise ValueError("a load runs once")
        self._gone = True
        with nogil:
            status = pl_go(self._run)
        if status:
            raise LoadError(self._run.failure.decode(errors="replace"))
        streams = []
        for i in range(self._n_streams):
            s = &self._run.streams[i]
            streams.append({
                "sent": s.sent, "answered": s.answered, "records_all": s.records_all,
                "requests": s.requests, "records": s.records, "bytes": s.bytes,
                "verified_batches": s.verified_batches,
                "errors": s.errors, "first_error": s.first_error,
                "latency": _histogram(&s.latency), "end_to_end": _histogram(&s.end_to_end),
            })
        return {
            "wall_ns": self._run.wall_ns, "broker_cpu_ns": self._run.broker_cpu_ns,
            "own_cpu_ns": self._run.own_cpu_ns, "streams": streams,
        }

    def stop(self):
        """End the window now; `go` drains and returns. From any thread."""
        self._run.stop = 1

    def __dealloc__(self):
        pl_free(self._run)
