"""One thread and a bounded queue of events: the controller's whole concurrency.

Place in the flow: any thread posts, the loop's thread handles one event after the other, so that
whatever the handler owns needs no lock. Knows nothing of the events themselves.

Locks: `_condition` only, a leaf; the handler runs without it. Full means `post` says False at once:
a caller is never blocked, since it may be a request handler with other connections to serve. After
`stop` the events already accepted are still handled, then the thread ends. Should the thread be
lost (own_thread.py), `post` says False from then on, and what is queued is `abandoned`, which
answers it; so is an event that the handler did not come to the end of. How long events wait and how
long they take is kept for the metrics.

A caller that runs it without a thread, such as a simulation of several brokers, calls `turn`
instead of `start`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kbroker.clock import Clock, SystemClock
from kbroker.metrics.durations import Durations
from kbroker.own_thread import OwnThread

E = TypeVar("E")


class EventLoop(Generic[E]):
    def __init__(
        self,
        name: str,
        handle: Callable[[E], None],
        events_max: int,
        abandoned: Callable[[E], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._handle = handle
        self._abandoned = abandoned
        self._events_max = events_max
        self._clock = clock or SystemClock()
        self.waited = Durations()
        self.took = Durations()
        self._condition = threading.Condition()
        self._queue: deque[tuple[int, E]] = deque()  # each with when it came
        self._stopping = False
        # The event that is being handled, by its name, and since when; from any thread.
        self.at_work: tuple[str, int] | None = None
        self._thread = OwnThread(name, self._run, self._given_up)

    def start(self) -> None:
        self._thread.start()

    def post(self, event: E, *, urgent: bool = False) -> bool:
        """Queue an event; False if the queue is full or the loop is stopping. An urgent event is
        the loop owner's own: it is never refused for want of room."""
        with self._condition:
            if self._stopping or (len(self._queue) >= self._events_max and not urgent):
                return False
            self._queue.append((self._clock.monotonic_ns(), event))
            self._condition.notify()
            return True

    def stop(self, last: E | None = None) -> None:
        """Accept nothing more but `last`, handle what is queued, and wait for the thread."""
        with self._condition:
            if not self._stopping and last is not None:
                self._queue.append((self._clock.monotonic_ns(), last))
            self._stopping = True
            self._condition.notify()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def queued(self) -> int:
        with self._condition:
            return len(self._queue)

    @property
    def stopping(self) -> bool:
        with self._condition:
            return self._stopping

    @property
    def thread(self) -> OwnThread:
        return self._thread

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._queue and not self._stopping:
                    self._condition.wait()
                if not self._queue:
                    return
            self.turn()

    def turn(self) -> None:
        """Handle the next event, if there is one; for one thread at a time."""
        with self._condition:
            if not self._queue:
                return
            posted_ns, event = self._queue.popleft()
        taken_ns = self._clock.monotonic_ns()
        self.waited.note(taken_ns - posted_ns)
        self.at_work = type(event).__name__, taken_ns
        try:
            self._handle(event)
        except BaseException as error:
            # The handler answers its own failures; this is the net below it.
            self._thread.failures.note(f"the event {type(event).__name__}", error)
            self._abandon(event)
        self.at_work = None
        self.took.note(self._clock.monotonic_ns() - taken_ns)

    def _given_up(self) -> None:
        with self._condition:
            self._stopping = True
            events, self._queue = self._queue, deque()
        for _, event in events:
            self._abandon(event)

    def _abandon(self, event: E) -> None:
        if self._abandoned is None:
            return
        try:
            self._abandoned(event)
        except Exception as error:
            self._thread.failures.note(f"answering {type(event).__name__}", error)


MakeLoop = Callable[[str, Callable[[E], None], int, Callable[[E], None], Clock], EventLoop[E]]
