"""The path of a hot request as a queueing network, in simulated time.

Three kinds of threads: the one of the load, the Processors, the handlers that take. A request is
read by the Processor of its connection, served by a handler that takes, and written by the same
Processor; then its client sends the next one. A client and a Processor take at most as many
requests at once as one connection has in flight, a handler RUN_REQUESTS_MAX. A thread works as long
as all that it took costs, and hands it over. It runs when a core is free; threads wait for cores in
the order in which they had something to do.

The queue between Processors and a handler has a lock. A push and a take hold it for `queue_us`, one
after the other.

It leaves out caches and memory that cores share, interrupts, the way to a client (a client that is
apart costs nothing) and disks. So it says where threads and locks end, not that a machine gets
there; `bounds.py` has the costs of bytes.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from kbroker.limits import RUN_REQUESTS_MAX

WARM: Final = 0.2  # of the requests: the queues fill


@dataclass(frozen=True)
class Costs:
    """CPU microseconds of one request."""

    processor_us: float
    handler_us: float
    client_us: float


@dataclass(frozen=True)
class Shape:
    """A broker and its load. `takers`: handlers that take at once, each from its share of the
    Processors, by a queue of its own. `client`: whether its thread shares these cores, has one
    more, or whether clients are on machines of their own, as many as they need."""

    cores: int
    processors: int
    takers: int = 1
    connections: int = 16
    in_flight: int = 5
    client: Literal["shares", "own core", "apart"] = "apart"
    queue_us: float = 0.0


@dataclass(frozen=True)
class Predicted:
    """`busy`: of each kind of thread, the share of the time in which all of them work."""

    requests_per_s: float
    busy: dict[str, float]

    @property
    def stops_at(self) -> str:
        """The kind that is busiest."""
        return max(self.busy, key=lambda kind: self.busy[kind])


# The steps of a request; numbers, since a member of an Enum takes longer to look up than to use.
_SEND, _READ, _SERVE, _WRITE = range(4)


class _Thread:
    """`cost_us`: of each step that it works at; they cost the same. It takes `most` at once."""

    def __init__(self, kind: str, cost_us: float, most: int, has_core: bool = False) -> None:
        self.kind = kind
        self.most = most
        self.has_core = has_core  # one of its own
        self.queue: deque[tuple[int, int]] = deque()
        self.taken: list[tuple[int, int]] = []
        self.waits = False  # for a core, or works
        self.busy_us = 0.0
        self.costs_us = [0.0, *accumulate([cost_us] * most)]  # of so many


class _Path:
    def __init__(self, costs: Costs, shape: Shape) -> None:
        half, most = costs.processor_us / 2, shape.in_flight
        self._shape = shape
        self._processors = [_Thread("processors", half, most) for _ in range(shape.processors)]
        self._takers = [
            _Thread("takers", costs.handler_us, RUN_REQUESTS_MAX) for _ in range(shape.takers)
        ]
        send_us = 0.0 if shape.client == "apart" else costs.client_us
        self._client = _Thread("client", send_us, most, has_core=shape.client != "shares")
        self._free = shape.cores
        self._ready: deque[_Thread] = deque()
        self._events: list[tuple[float, int, _Thread]] = []
        self._serial = 0
        self._now_us = self._queue_held_us = 0.0
        self._queues_free_us = [0.0] * shape.takers
        self._done = 0

    def run(self, requests: int) -> Predicted:
        shape = self._shape
        for connection in range(shape.connections):
            for _ in range(shape.in_flight):
                self._hand(self._client, connection, _SEND)
        warm = int(requests * WARM)
        since_us = 0.0
        while self._done < requests:
            before = self._done
            self._now_us, _, thread = heapq.heappop(self._events)
            self._end(thread)
            if before < warm <= self._done:
                since_us, warm = self._now_us, self._done
                for each in self._all():
                    each.busy_us = 0.0
                self._queue_held_us = 0.0
        span_us = self._now_us - since_us
        busy: dict[str, float] = {}
        for kind in ("client", "processors", "takers"):
            threads = [each for each in self._all() if each.kind == kind]
            busy[kind] = sum(each.busy_us for each in threads) / span_us / len(threads)
        busy["queue"] = self._queue_held_us / span_us / shape.takers
        own = [each for each in self._all() if not each.has_core]
        busy["cores"] = sum(each.busy_us for each in own) / span_us / shape.cores
        return Predicted((self._done - warm) / span_us * 1e6, busy)

    def _all(self) -> list[_Thread]:
        return [self._client, *self._processors, *self._takers]

    def _hand(self, thread: _Thread, connection: int, step: int) -> None:
        thread.queue.append((connection, step))
        if not thread.waits:
            thread.waits = True
            if not thread.has_core:
                self._ready.append(thread)
            self._dispatch()
            if thread.has_core:
                self._begin(thread)

    def _dispatch(self) -> None:
        while self._free and self._ready:
            self._free -= 1
            self._begin(self._ready.popleft())

    def _begin(self, thread: _Thread) -> None:
        count = min(len(thread.queue), thread.most)
        thread.taken = [thread.queue.popleft() for _ in range(count)]
        took_us = thread.costs_us[count]
        waited_us = 0.0
        if self._shape.queue_us and (
            thread.kind == "takers" or any(step == _READ for _, step in thread.taken)
        ):
            queue = self._queue_of(thread.taken[0][0])
            begins_us = max(self._now_us, self._queues_free_us[queue])
            self._queues_free_us[queue] = begins_us + self._shape.queue_us
            self._queue_held_us += self._shape.queue_us
            waited_us = begins_us - self._now_us
            took_us += self._shape.queue_us
        thread.busy_us += took_us
        self._serial += 1
        ends_us = self._now_us + waited_us + took_us
        heapq.heappush(self._events, (ends_us, self._serial, thread))

    def _queue_of(self, connection: int) -> int:
        return connection % len(self._processors) % len(self._takers)

    def _end(self, thread: _Thread) -> None:
        taken, thread.taken = thread.taken, []
        if not thread.has_core:
            self._free += 1
        thread.waits = bool(thread.queue)
        if thread.waits and thread.has_core:
            self._begin(thread)
        elif thread.waits:
            self._ready.append(thread)
        for connection, step in taken:
            processor = connection % len(self._processors)
            if step == _SEND:
                self._hand(self._processors[processor], connection, _READ)
            elif step == _READ:
                self._hand(self._takers[self._queue_of(connection)], connection, _SERVE)
            elif step == _SERVE:
                self._hand(self._processors[processor], connection, _WRITE)
            else:
                self._done += 1
                self._hand(self._client, connection, _SEND)
        self._dispatch()


def predicted(costs: Costs, shape: Shape, requests: int = 12_000) -> Predicted:
    """What a broker of this shape does, after a fifth of so many requests. ValueError: none."""
    counts = shape.cores, shape.processors, shape.takers, shape.connections, shape.in_flight
    if min(counts) < 1 or requests < 100:
        raise ValueError(f"nothing to do it, or nothing to do: {shape}, {requests} requests")
    return _Path(costs, shape).run(requests)
