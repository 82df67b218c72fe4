"""KafkaRequestHandlerPool: the threads that do requests, and how idle they are.

Each thread spends its life in `HotPath.serve`, without the GIL; it comes back with the requests
that Python must answer, which it dispatches one after the other, with deadlines for the time wheel,
and with writes of groups whose followers have them now.
Threads are `kafka-request-handler-N` in logs and metrics (the kernel shows request-hand-N, since it
keeps 15 bytes).

Idle is time asleep with nothing to take. Waiting for the GIL and time in Python count as busy, so
the meter falls to 0 when the broker is saturated, whatever saturates it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from kbroker.clock import Clock, SystemClock
from kbroker.engine._hot import CLOSED, IDLE
from kbroker.failures import Failures
from kbroker.own_thread import OwnThread

if TYPE_CHECKING:
    from kbroker._net import WrappedRequest
    from kbroker.engine._hot import HotPath
    from kbroker.engine.verifications import Verifications, Verify

logger: Final = logging.getLogger("kbroker.request")

# Handlers that are inside slow requests when the broker stops are left there after this, all of
# them together.
JOIN_TIMEOUT_MS: Final = 5_000


class HandlerPool:
    """`num.io.threads` handlers over one hot path."""

    def __init__(
        self,
        hot: HotPath,
        size: int,
        dispatch: Callable[[WrappedRequest], None],
        watch_deadline: Callable[[int], None],
        failures: Failures | None = None,
        clock: Clock | None = None,
        verify: Verify | None = None,
    ) -> None:
        """`verify` asks transaction coordinators for produces that begin a transaction."""
        self._clock: Final[Clock] = clock or SystemClock()
        self.failures: Final = failures or Failures("request handlers")
        self._hot = hot
        self._dispatch = dispatch
        self._watch_deadline = watch_deadline
        self._verify = verify
        hot.watch_deadline = self._watch
        self._lock = threading.Lock()
        self._started = False
        self._closed = False
        # By worker. One that leaves keeps its place until its thread has ended.
        self._threads: dict[int, OwnThread] = {}
        self._leaving: dict[int, OwnThread] = {}
        while len(self._threads) < size:
            self._add()

    @property
    def size(self) -> int:
        return len(self._threads)

    def start(self) -> None:
        with self._lock:
            self._started = True
            for thread in self._threads.values():
                thread.start()

    def resize(self, size: int) -> None:
        """num.io.threads: does not wait; a handler that is taken away finishes what it has taken.

        From any thread; does nothing once `join` has been called. What starting a thread raises
        (RuntimeError), and then there are fewer than asked for.
        """
        with self._lock:
            if self._closed:
                return
            while len(self._threads) > size:
                index, thread = max(self._threads.items(), key=self._leaves_first)
                self._hot.retire_worker(index)
                self._leaving[index] = thread
                del self._threads[index]
            while len(self._threads) < size:
                self._add()

    def _leaves_first(self, item: tuple[int, OwnThread]) -> tuple[bool, int]:
        """As a key: who is held by a disk goes first, since those that stay are to serve."""
        return self._hot.is_held(item[0]), item[0]

    def _add(self) -> None:
        index = self._free_worker()
        thread = None
        try:
            thread = self._thread(index)
            if self._started:
                thread.start()
        except BaseException:
            self._hot.retire_worker(index)
            if thread is not None:
                self._leaving[index] = thread  # its place is free: it has never lived
            raise
        self._threads[index] = thread

    def _free_worker(self) -> int:
        """One whose thread has left, or a new one."""
        for index, thread in sorted(self._leaving.items()):
            if not thread.is_alive():
                self._hot.revive_worker(index)
                del self._leaving[index]
                return index
        return self._hot.add_worker()

    def _thread(self, index: int) -> OwnThread:
        return OwnThread(
            f"kafka-request-handler-{index}",
            partial(self._serve, index),
            partial(self._lost, index),
        )

    @property
    def threads(self) -> list[OwnThread]:
        with self._lock:
            return [*self._threads.values(), *self._leaving.values()]

    def join(self) -> None:
        """Wait for the handlers to leave; the request queue has been closed before."""
        with self._lock:
            self._closed = True
            threads = [*self._threads.values(), *self._leaving.values()]
        until_ms = self._clock.monotonic_ms() + JOIN_TIMEOUT_MS
        for thread in threads:
            if thread.ident is None:
                continue  # never started
            thread.join(max(0, until_ms - self._clock.monotonic_ms()) / 1000)
            if thread.is_alive():
                logger.warning("%s is still in a request; the stop goes on without it", thread.name)

    def _watch(self, tick: int) -> None:
        try:
            self._watch_deadline(tick)
        except BaseException as error:
            # The handler must live, and no request wait for a deadline that will not come.
            self._hot.expire(tick)
            self.failures.note("setting the deadline of parked requests", error)

    def _call_settled(self, worker: int) -> None:
        """Call those that waited until the followers had a group's write."""
        for tell, code in self._hot.take_settled(worker):
            try:
                tell(code)
            except BaseException as error:
                # Whatever it is: those after it are called.
                self.failures.note("the caller that waited for a group's write", error)

    @cached_property
    def _verifications(self) -> Verifications:
        """Imported for the first produce that begins a transaction."""
        from kbroker.engine.verifications import Verifications

        return Verifications(self._hot, self._verify)

    def _ask_coordinators(self, worker: int) -> None:
        for asked in self._hot.take_asking(worker):
            try:
                self._verifications.ask(asked)
            except BaseException as error:
                # Its deadline ends the wait; the next ones are asked for, whatever this is.
                self.failures.note("asking a transaction's coordinator", error)

    def _serve(self, worker: int) -> None:
        while True:
            status, requests, ticks = self._hot.serve(worker)
            if status == IDLE:
                continue
            if status == CLOSED:
                return
            left = deque(requests)
            # A request without a reference ends its connection: none is kept here.
            del requests
            try:
                for tick in ticks:
                    self._watch(tick)
                self._call_settled(worker)
                self._ask_coordinators(worker)
                self._dispatch_all(left)
            finally:
                self._end_all(left)

    def _lost(self, worker: int) -> None:
        """The thread is dead, and the others serve. The last one of all stays to end connections:
        requests without Python are still served, and no client waits for an answer for ever."""
        while not self._can_go(worker):
            try:
                status, requests, ticks = self._hot.serve(worker)
                if status == CLOSED:
                    return
                for tick in ticks:
                    self._hot.expire(tick)
                self._call_settled(worker)
                for number, *_ in self._hot.take_asking(worker):
                    self._hot.coordinator_answered(number, [])  # its client tries again
                self._end_all(deque(requests))
            except BaseException as error:
                self.failures.note("what the last handler does when it is lost", error)

    def _can_go(self, worker: int) -> bool:
        """Whether others serve; then its worker is free for a new thread."""
        with self._lock:
            if worker in self._threads:
                if len(self._threads) == 1:
                    return False
                self._hot.retire_worker(worker)
                self._leaving[worker] = self._threads.pop(worker)
            return True

    def _end_all(self, requests: deque[WrappedRequest]) -> None:
        while requests:
            requests.popleft().close_connection("no handler serves it")

    def _dispatch_all(self, requests: deque[WrappedRequest]) -> None:
        while requests:
            request = requests.popleft()
            try:
                self._dispatch(request)
                request.note_waiting()
            except BaseException as error:
                # dispatch answers every failure itself; this is the last net, whatever it is, for
                # the later requests as well.
                self.failures.note(f"dispatching a request of API {request.api_key}", error)
                if not request.answered:
                    request.close_connection("dispatch failed")
