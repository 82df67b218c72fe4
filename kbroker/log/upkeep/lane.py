"""One worker: it does its work in the order of the calls, and waiting for it is bounded.

Place in the flow: the controller's thread puts work into the lane of a data directory
(`log_lanes.py`), since an operation of a disk may hang. It waits for that work as long as the lane
goes on: not for work in a lane whose current work has taken longer than the caller allows. Such
work is `late`; it is done when the disk answers, in its order.

Work that `takes_turns`, of which thousands may come at once, is done by turns with the other work,
one piece of each. An error of the work is kept in it. A lane that is stopped does the work that it
has and takes no more. Should its thread be lost (own_thread.py), what waits stays there, `wait`
returns, and another lane goes on for it (`replace_lane`). One condition, a leaf: no work runs under
it. `put`, `wait` and `stop` from one thread at a time, the figures from any.

A caller without a thread for it, such as a simulation of several brokers, uses `AtOnce`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import InvariantError
from kbroker.own_thread import OwnThread, nothing

THREAD_NAME: Final = "kbroker-log-lane"


class Work:
    """A call, and what became of it."""

    __slots__ = ("call", "error", "late", "over", "takes_turns")

    def __init__(self, call: Callable[[], object], *, takes_turns: bool = False) -> None:
        self.call: Final = call
        self.takes_turns: Final = takes_turns
        self.over = False
        self.late = False  # it was waited for, and is no more
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.call()
        except Exception as error:
            self.error = error


class Lane(Protocol):
    """What `LogLanes` asks of a worker."""

    def put(self, work: Work) -> None:
        """Have it done after all of its kind that was put before."""

    def wait(self, work: Sequence[Work], stuck_ms: int) -> None:
        """Until all of it is over, or the lane is at something for longer than `stuck_ms`: what is
        not over then is late."""

    def is_stuck(self, stuck_ms: int) -> bool:
        """Whether it is at something for longer than that; any thread."""

    @property
    def is_lost(self) -> bool:
        """Whether its thread is lost: what it has waits for another lane; any thread."""

    @property
    def left(self) -> int:
        """How much is not over; any thread."""

    @property
    def thread(self) -> OwnThread | None:
        """Its own, if it has one."""

    def stop(self) -> bool:
        """After all that was put. False: that takes too long, and goes on; or it is lost."""

    def hand_over(self) -> Sequence[Work]:
        """What waits is for another lane, and this one ends after its current work."""


# A lane that calls back, without a lock, when work is over, with whether it was late.
Over = Callable[[Work, bool], None]
MakeLane = Callable[[Over, Clock], Lane]


class AtOnce:
    """No worker: everything is done where it is put."""

    is_lost = False
    left = 0
    thread = None

    def put(self, work: Work) -> None:
        work.run()
        work.over = True

    def wait(self, work: Sequence[Work], stuck_ms: int) -> None:
        """It is over."""

    def is_stuck(self, stuck_ms: int) -> bool:
        return False

    def stop(self) -> bool:
        return True

    def hand_over(self) -> Sequence[Work]:
        return ()


def at_once(over: Over, clock: Clock) -> Lane:
    """A `MakeLane`."""
    return AtOnce()


def replace_lane(lane: Lane, fresh: Lane) -> None:
    """Have `fresh` do what waits in a lane. RuntimeError: it has no thread, and nothing changes."""
    fresh.put(Work(nothing))  # its thread begins, before anything is handed over to it
    for work in lane.hand_over():
        fresh.put(work)


class ThreadLane:
    """A worker with a thread, which begins with the first work."""

    def __init__(
        self,
        over: Over,
        clock: Clock,
        name: str = THREAD_NAME,
        lost: Callable[[], object] = nothing,
    ) -> None:
        """`lost` is called on its thread when that is lost."""
        self._was_lost: Final = lost
        self._over: Final = over
        self._clock: Final = clock
        self._changed: Final = threading.Condition()
        self._queue: deque[Work] = deque()
        self._by_turns: deque[Work] = deque()
        self._was_by_turns = False
        self._at_work: Work | None = None
        self._since_ns = 0
        self._awaited: Work | None = None
        self._stopping = False
        self.is_lost = False
        self.thread: Final = OwnThread(name, self._run, self._given_up)

    def put(self, work: Work) -> None:
        with self._changed:
            self._queue_of(work).append(work)
            self._changed.notify_all()
        if self.thread.ident is None:
            self._start(work)

    def _queue_of(self, work: Work) -> deque[Work]:
        return self._by_turns if work.takes_turns else self._queue

    def _start(self, work: Work) -> None:
        try:
            self.thread.start()
        except BaseException as error:
            if isinstance(error, Exception) and self.thread.is_alive():
                return  # the memory was short after the start
            with self._changed:  # who called has it back, and may put it again
                self._queue_of(work).remove(work)
            raise

    def wait(self, work: Sequence[Work], stuck_ms: int) -> None:
        with self._changed:
            self._awaited = work[-1]  # after all the others
            while not (self._awaited.over or self.is_lost):
                until_ns = self._since_ns + stuck_ms * NS_PER_MS
                if self._at_work is None:
                    until_ns = self._clock.monotonic_ns() + stuck_ms * NS_PER_MS  # about to begin
                elif self._clock.monotonic_ns() >= until_ns:
                    break
                self._clock.wait_until(self._changed, until_ns)
            self._awaited = None
            for each in work:
                each.late = not each.over

    def is_stuck(self, stuck_ms: int) -> bool:
        with self._changed:
            since_ns = self._since_ns
            at_work = self._at_work is not None
        return at_work and self._clock.monotonic_ns() - since_ns >= stuck_ms * NS_PER_MS

    @property
    def left(self) -> int:
        with self._changed:
            waiting = len(self._queue) + len(self._by_turns)
            return waiting + (self._at_work is not None)

    def stop(self) -> bool:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        return self.thread.await_end() and not self.is_lost

    def hand_over(self) -> Sequence[Work]:
        with self._changed:
            waiting = [*self._queue, *self._by_turns]
            self._queue.clear()
            self._by_turns.clear()
            self._stopping = True
            self._changed.notify_all()
        return waiting

    # --- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work.run()
            except BaseException as error:
                raised = f"it ended by {type(error).__name__}: {error}"
                work.error = InvariantError(raised)
            with self._changed:
                self._at_work = None
                work.over = True
                if work is self._awaited:
                    self._changed.notify_all()
                late = work.late
            self._over(work, late)

    def _next(self) -> Work | None:
        with self._changed:
            while not (self._queue or self._by_turns):
                if self._stopping:
                    return None
                self._changed.wait()
            self._since_ns = self._clock.monotonic_ns()  # which may raise: nothing is taken yet
            takes_turn = not self._queue or (bool(self._by_turns) and not self._was_by_turns)
            self._was_by_turns = takes_turn
            self._at_work = (self._by_turns if takes_turn else self._queue).popleft()
            return self._at_work

    def _given_up(self) -> None:
        with self._changed:
            self.is_lost = True
            left, self._at_work = self._at_work, None
            if left is not None:
                left.error, left.over = InvariantError("the thread that does this is lost"), True
            self._changed.notify_all()
        self._was_lost()
