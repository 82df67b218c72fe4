# cython: language_level=3
"""Request times of all network threads together: counts since the start, quantiles of late.

The Processors' tables only grow. `tick` is called at a fixed pace; it takes what came since the
last one into weights that fade with `keep`, so that a quantile speaks of the last minutes and not
of the whole life of the broker. `read` adds what has come since the tick. Any thread, one at a
time: both hold the GIL, for some microseconds a Processor and API that has been asked for.

A quantile is the middle of its bucket, 6.3 % off at most.

Kafka tells fetches three times: all of them under the API's key, and those of consumers and of
followers by themselves, under keys of our own that no request has.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from collections import namedtuple

from kbroker._net cimport SocketServer
from kbroker.core._atomics cimport kb_load_ptr
from kbroker.core._figures cimport KB_TIME_BUCKETS, kb_figure, kb_time_bucket_floor
from kbroker.core._limits cimport API_KEYS_MAX, API_VERSIONS_MAX
from kbroker.net._types cimport (
    TIME_PARTS,
    TIME_TABLES,
    TIME_TOTAL,
    RequestTimes,
)
from kbroker.protocol._versions cimport API_FETCH

cdef enum:
    KEYS = TIME_TABLES + 1

FETCH_FOLLOWER = API_KEYS_MAX
FETCH_CONSUMER = TIME_TABLES

PARTS = ("request_queue_time", "local_time", "remote_time", "response_queue_time",
         "response_send_time", "total_time")

PartTimes = namedtuple("PartTimes", ("quantiles_ms", "sum_ms"))
ApiTimes = namedtuple("ApiTimes", ("api_key", "total", "versions", "parts"))


cdef struct Window:
    RequestTimes last             # as of the last tick
    float weights[TIME_PARTS][KB_TIME_BUCKETS]


cdef class RequestFigures:
    cdef SocketServer server
    cdef tuple quantiles
    cdef Window* windows[KEYS]
    cdef RequestTimes sums        # of the API that is being read

    def __cinit__(self, SocketServer server not None, tuple quantiles not None):
        self.server = server
        self.quantiles = quantiles

    def __dealloc__(self):
        cdef int key
        for key in range(KEYS):
            free(self.windows[key])

    cdef int _sum(self, int key) except -1:
        # All Processors' tables of one API into `sums`; how many there are.
        cdef int found = self._add(API_FETCH if key == TIME_TABLES else key, 0)
        return self._add(API_KEYS_MAX, found) if key == API_FETCH else found

    cdef int _add(self, int place, int found) noexcept:
        cdef int64_t* to = <int64_t*>&self.sums
        cdef int64_t* of
        cdef int i
        cdef size_t word
        for i in range(self.server.processor_count):
            of = <int64_t*>kb_load_ptr(<void**>&self.server.processors[i].times[place])
            if of == NULL:
                continue
            if found == 0:
                memset(&self.sums, 0, sizeof(RequestTimes))
            found += 1
            for word in range(sizeof(RequestTimes) // sizeof(int64_t)):
                to[word] += kb_figure(of + word)
        return found

    cdef Window* _window(self, int key) except NULL:
        if self.windows[key] == NULL:
            self.windows[key] = <Window*>calloc(1, sizeof(Window))
            if self.windows[key] == NULL:
                raise MemoryError
        return self.windows[key]

    def tick(self, float keep):
        """Older counts weigh `keep` of their weight; new ones weigh 1."""
        cdef Window* window
        cdef int key, part, at
        for key in range(KEYS):
            if not self._sum(key):
                continue
            window = self._window(key)
            for part in range(<int>TIME_PARTS):
                for at in range(KB_TIME_BUCKETS):
                    window.weights[part][at] = window.weights[part][at] * keep + <float>(
                        self.sums.buckets[part][at] - window.last.buckets[part][at])
            window.last = self.sums

    def read(self):
        """Every API that has been answered; see the stub for the shape."""
        cdef int key
        return [self._api(key) for key in range(KEYS) if self._sum(key)]

    cdef object _api(self, int key):
        cdef Window* window = self._window(key)
        cdef int64_t total = 0
        cdef int at
        cdef int part = TIME_TOTAL
        for at in range(KB_TIME_BUCKETS):
            total += self.sums.buckets[part][at]
        versions = [
            (at, self.sums.versions[at])
            for at in range(API_VERSIONS_MAX) if self.sums.versions[at] > 0
        ]
        parts = [
            PartTimes(self._quantiles(window, part), self.sums.sum_ns[part] / 1e6)
            for part in range(<int>TIME_PARTS)
        ]
        return ApiTimes(key, total, versions, parts)

    cdef tuple _quantiles(self, Window* window, int part):
        cdef double weights[KB_TIME_BUCKETS]
        cdef double total = 0
        cdef double below = 0
        cdef double wanted
        cdef int at
        for at in range(KB_TIME_BUCKETS):
            weights[at] = window.weights[part][at] + <double>(
                self.sums.buckets[part][at] - window.last.buckets[part][at])
            total += weights[at]
        found = []
        at = 0
        for quantile in self.quantiles:       # ascending
            wanted = <double>quantile * total
            while at < KB_TIME_BUCKETS - 1 and below + weights[at] < wanted:
                below += weights[at]
                at += 1
            found.append(_middle_ms(at) if total > 0 else 0.0)
        return tuple(found)

    def histogram(self, int api_key, int part):
        """Counts since the start by bucket: (upper bound in ms, requests), empty ones left out."""
        cdef int at
        if not (0 <= api_key < KEYS and 0 <= part < TIME_PARTS):
            raise ValueError(f"no such times: {api_key} {part}")
        if not self._sum(api_key):
            return []
        return [
            (kb_time_bucket_floor(at + 1) / 1e6, self.sums.buckets[part][at])
            for at in range(KB_TIME_BUCKETS) if self.sums.buckets[part][at] > 0
        ]


cdef double _middle_ms(int bucket) noexcept:
    # What falls into the first bucket took no measurable time.
    if bucket == 0:
        return 0.0
    return (kb_time_bucket_floor(bucket) + kb_time_bucket_floor(bucket + 1)) / 2e6
