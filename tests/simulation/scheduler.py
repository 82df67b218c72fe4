"""The threads of simulated brokers, of which one runs at a time: which one, a seed decides.

In a debug build the locks of a broker, in C and in Python, and the log's file operations ask here
(`kbroker/testing/_schedule`, `FileFaults`). A broker's controller, its fetchers' loop, its handlers
and its background work are threads of the system, each with a queue of callbacks. All the rest,
such as clients, the store and the network, is the world, which runs on the simulation's own thread.
Threads hand over at a lock and at a file operation: for no time, or for some, as on a busy machine.

Waiting is a state of the schedule. A thread whose lock is another's, or whose disk hangs, may not
run until the lock is free, or its time has come; everything else goes on. A thread that waits for
itself, through any chain of locks, is in a deadlock: a violation with the names of the locks.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest import mock

from kbroker.clock import NS_PER_MS
from kbroker.core._lock_order import DEBUG_BUILD, RANKS
from kbroker.testing import _schedule
from kbroker.testing.file_faults import Fault, FileFaults
from tests.simulation.loop import Process, StepLoop
from tests.simulation.lost_syncs import LostSyncs
from tests.simulation.scheduled_locks import ScheduledCondition, ScheduledLock
from tests.simulation.thread_loop import ThreadLoop

if TYPE_CHECKING:
    from tests.simulation.safety import Safety

T = TypeVar("T")

# Places that a thread passes before it hands over, mostly; and how long others then go on.
PLACES_MAX: Final = 120
AWAY_MS: Final = (0, 0, 0, 0, 0, 1, 3, 20, 100)
PAUSE_MS: Final = 1.0  # of a thread that polls
# The operations that a hung disk delays. Reads come from memory.
HANGING: Final = frozenset({
    "open", "write", "truncate", "allocate", "unlink", "sync", "rename", "mkdir",
})  # fmt: skip
# Modules whose locks are the schedule's; but of two the locks guard nothing that hands over, and
# some are made once for the whole process.
_OURS: Final = ("kbroker.", "tests.simulation.waits")
_LEAVES: Final = ("kbroker.log_lines", "kbroker.failures")
# The cluster does not change during these checks.
_STEPS_OF_SAFETY: Final = (
    "acknowledges", "asks_for", "consumed", "ended", "led", "look", "power_cut",
    "written",
)  # fmt: skip
_WORLD_WAITS_MAX: Final = 100_000
_NAMES: Final = {rank: name for name, rank in RANKS.items()}


class Waiting:
    """The wait of a thread: for a lock or a condition by its key, for a time, or for both."""

    def __init__(self, what: str, since_ms: float, key: object = None, owner: Any = None) -> None:
        self.what = what
        self.since_ms = since_ms
        self.key = key
        self.owner = owner  # of a lock: a thread, the system's number of one, or None
        self.over = False

    def __str__(self) -> str:
        return self.what


class BrokerThread:
    """One thread of one start of a broker: its callbacks run one after the other."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str) -> None:
        self.name = name
        self.process = process
        self.calls: deque[Callable[[], object]] = deque()
        self.busy = False
        self.waits: Waiting | None = None
        self.in_lane = 0  # in the place of a lane's thread
        self.failure: BaseException | None = None
        self.loop: ThreadLoop | None = None
        self._scheduler = scheduler
        self._turn = threading.Semaphore(0)
        self._ended = False
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def where(self) -> str:
        """Innermost last, of the broker's Python."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        calls = [each for each in traceback.extract_stack(frame) if "kbroker/" in each.filename]
        return ", ".join(f"{each.name} at line {each.lineno}" for each in calls[-5:])

    def __str__(self) -> str:
        node_id = self._scheduler.nodes.get(self.process)
        return self.name if node_id is None else f"{self.name} of broker {node_id}"

    @property
    def native_id(self) -> int | None:
        return self._thread.native_id

    @property
    def may_run(self) -> bool:
        if self.process.paused or not (self.process.alive or self.loop is not None):
            return False
        if self.busy:
            return self.waits is None or self.waits.over
        return bool(self.calls)

    def give_turn(self) -> None:
        self._turn.release()

    def await_turn(self) -> None:
        self._turn.acquire()

    def end(self) -> None:
        """Called while it is idle."""
        self._ended = True
        self._turn.release()
        self._thread.join()

    def _live(self) -> None:
        while True:
            self._turn.acquire()
            if self._ended:
                return
            asyncio._set_running_loop(self.loop)
            self.busy = True
            try:
                self.calls.popleft()()
            except BaseException as error:
                self.failure = error
            self.busy = False
            self._scheduler.back_to_the_world()


class Scheduler:
    """See the head of this file."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._failed: Callable[[str, str], None] = _no_listener
        self.loop: ScheduledLoop
        self._files: FileFaults | None = None
        self._stuck: set[Process] = set()
        self.threads: list[BrokerThread] = []
        self.running: BrokerThread | None = None  # None: the world
        self._back = threading.Semaphore(0)
        self._world_waited = 0
        self.nodes: dict[Process, int] = {}
        self._ending: Process | None = None
        self._skipped_ns = 0  # the waits that a process skips at its end
        self.lost: LostSyncs | None = None
        # Until when, by a part of the path, and operations.
        self._hangs: dict[tuple[str, frozenset[str]], float] = {}

    def begin(self, safety: Safety) -> ScheduledLoop:
        """Begin for a cluster with these checks."""
        self._failed = safety.fail
        for name in _STEPS_OF_SAFETY:
            setattr(safety, name, self._in_one_step(getattr(safety, name)))
        self.loop = ScheduledLoop(safety.after_step, self)  # type: ignore[abstract]
        self.watch_files([])
        return self.loop

    def _in_one_step(self, call: Callable[..., T]) -> Callable[..., T]:
        def called(*how: Any, **settings: Any) -> T:
            with self.still():
                return call(*how, **settings)

        return called

    # --- which threads ----------------------------------------------------------------------------

    def run(self, process: Process, name: str, call: Callable[[], object]) -> None:
        """On the thread of that name, after its queued callbacks."""
        self._thread(process, name).calls.append(call)

    def _thread(self, process: Process, name: str) -> BrokerThread:
        for each in self.threads:
            if each.process is process and each.name == name:
                return each
        thread = BrokerThread(self, process, name)
        self.threads.append(thread)
        return thread

    def new_loop(self, process: Process, name: str) -> ThreadLoop:
        """An asyncio loop with a thread of its own."""
        number = sum(each.process is process and each.loop is not None for each in self.threads)
        thread = self._thread(process, f"{name} {number}")
        thread.loop = ThreadLoop(self.loop, thread.calls.append)  # type: ignore[abstract]
        return thread.loop

    def end(self, process: Process) -> bool:
        """Its threads complete their current callbacks, and begin no more: nothing hangs for them,
        and no other thread runs meanwhile. False: they wait for each other for good."""
        if self.running is not None:
            raise AssertionError("a broker is ended by the world")
        if process in self._stuck:
            return False
        self._ending = process
        mine = [each for each in self.threads if each.process is process]
        process.paused = False  # so that its threads may run to their end
        for each in mine:
            if each.loop is None:
                each.calls.clear()
            if each.waits is not None:
                each.waits.over = True
        while busy := [each for each in mine if each.busy]:
            able = [each for each in busy if each.may_run]
            if not able:
                self._stuck.add(process)
                detail = "; ".join(f"{each} waits for {each.waits}" for each in busy)
                self._failed("no deadlock", detail)
                break
            self._run(able[0])
        self._ending = None
        self._skipped_ns = 0
        for each in mine:
            if each.loop is None and not each.busy:
                each.end()
                self.threads.remove(each)
        return process not in self._stuck

    def close(self) -> None:
        """End all threads but those that wait for each other."""
        for process in dict.fromkeys(each.process for each in self.threads):
            self.end(process)
        for each in self.threads:
            while each.may_run:
                self._run(each)  # the remaining callbacks of a loop
            if not each.busy:
                each.end()
        self.threads.clear()
        if self._files is not None:
            self._files.__exit__(None, None, None)

    # --- the world's side -------------------------------------------------------------------------

    def able(self) -> list[BrokerThread]:
        return [each for each in self.threads if each.may_run]

    def go_on(self, able: list[BrokerThread]) -> None:
        """One of them, up to where it hands over."""
        self._run(able[0] if len(able) == 1 else self._dice.choice(able))

    def prefers_threads(self) -> bool:
        return self._dice.random() < 0.5

    def _run(self, thread: BrokerThread) -> None:
        before, self.running = self.running, thread
        _schedule.hand_over_after(self._places())
        thread.give_turn()
        self._back.acquire()
        self.running = before
        _schedule.hand_over_after(0)
        if thread.failure is not None:
            failure, thread.failure = thread.failure, None
            raise failure

    def _places(self) -> int:
        if self._ending is not None:
            return 0
        return self._dice.randint(1, self._dice.choice((3, 20, PLACES_MAX)))

    def back_to_the_world(self) -> None:
        self._back.release()

    # --- the threads' side ------------------------------------------------------------------------

    def hand_over(self) -> None:
        """At a place, when its turn is over."""
        if self.running is None:
            return
        away_ms = self._dice.choice(AWAY_MS)
        self._wait(Waiting("its turn", self._now_ms), away_ms)

    @contextmanager
    def still(self) -> Iterator[None]:
        """The body is one step, apart from its waits."""
        if self.running is None:
            yield
            return
        left = _schedule.hand_over_after(0)
        try:
            yield
        finally:
            if self.running is not None and self._ending is None:
                _schedule.hand_over_after(max(1, left))

    def await_c_lock(self, address: int, rank: int, owner: int) -> None:
        self.wait_for(address, f"a lock of the rank {_NAMES[rank]}", owner)

    def await_condition(self, address: int) -> None:
        self.wait_for(address, "a condition of the log", None)

    def wait_for(self, key: object, what: str, owner: Any, for_ms: float | None = None) -> None:
        """Wait for a lock that is not free now. It may be free when this returns."""
        waiting = Waiting(what, self._now_ms, key, owner)
        thread = self.running
        if thread is None:
            self._let_others_go_on(what)
            return
        thread.waits = waiting
        self._look_for_a_ring(thread)
        self._wait(waiting, for_ms)

    def released(self, key: object) -> None:
        for each in self.threads:
            if each.waits is not None and each.waits.key == key:
                each.waits.over = True

    def _wait(self, waiting: Waiting, for_ms: float | None) -> None:
        thread = self.running
        assert thread is not None
        if for_ms is not None:
            if thread.process is self._ending:
                self._skipped_ns += round(for_ms * NS_PER_MS)
                thread.waits = None
                return
            if for_ms <= 0:
                waiting.over = True
            else:
                self.loop.later(for_ms, setattr, waiting, "over", True)
        thread.waits = waiting
        self._back.release()
        thread.await_turn()
        thread.waits = None

    def _let_others_go_on(self, what: str) -> None:
        """The world needs a lock that a thread has: it is not long."""
        self._world_waited += 1
        if self._world_waited > _WORLD_WAITS_MAX or not self.loop.step():
            # Of C there is no way back.
            sys.stderr.write(f"the simulation waits for {what} for good\n")
            os.abort()

    def _look_for_a_ring(self, thread: BrokerThread) -> None:
        ring: list[BrokerThread] = []
        at: BrokerThread | None = thread
        while at is not None and at not in ring:
            ring.append(at)
            at = None if at.waits is None or at.waits.over else self._owner(at.waits)
        if at is thread:
            detail = "; ".join(f"{each} waits for {each.waits}" for each in ring)
            self._failed("no deadlock", detail)

    def _owner(self, waiting: Waiting) -> BrokerThread | None:
        for each in self.threads:
            if waiting.owner is not None and waiting.owner in (each, each.native_id):
                return each
        return None

    # --- time -------------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> float:
        return self.loop.time() * 1000

    def now_ns(self) -> int:
        skips = self.running is not None and self.running.process is self._ending
        return round(self.loop.time() * 1e9) + (self._skipped_ns if skips else 0)

    def pause(self, us: int) -> None:
        """A thread polls for a condition."""
        if self.running is None:
            self._let_others_go_on("the condition that it polls for")
        else:
            self._wait(Waiting("a lock that it tries", self._now_ms), PAUSE_MS)

    # --- files ------------------------------------------------------------------------------------

    def watch_files(self, faults: Sequence[Fault]) -> None:
        """File operations call the scheduler, and fail by these faults."""
        if self._files is not None:
            self._files.__exit__(None, None, None)
        armed = [] if self.lost is None else self.lost.faults()
        files = FileFaults(*faults, *armed, before=self.before_operation, only_hang=True)
        self._files = files.__enter__()

    def hang(self, path_part: str, for_ms: float, operations: frozenset[str] = HANGING) -> None:
        """These operations on files whose paths have this in them, in every broker's threads."""
        until_ms = self._now_ms + for_ms
        key = path_part, operations
        self._hangs[key] = max(until_ms, self._hangs.get(key, 0))

    def mend(self) -> None:
        """Nothing hangs any more, or is to fail."""
        self._hangs.clear()
        if self.lost is not None:
            self.lost.disarm()
        for each in self.threads:
            if each.waits is not None and each.waits.what.startswith("the disk"):
                each.waits.over = True

    def hangs(self, path: str) -> bool:
        return any(
            part in path and self._now_ms < until_ms for (part, _), until_ms in self._hangs.items()
        )

    @property
    def any_hangs(self) -> bool:
        return any(self._now_ms < until_ms for until_ms in self._hangs.values())

    def fail_sync(self, directory: str) -> None:
        """The next one there."""
        if self.lost is not None and self._files is not None:
            self._files.add(self.lost.arm(directory))

    def before_operation(self, operation: str, path: str) -> None:
        """Asked by the log's file operations."""
        if self.running is None:
            if operation == "sync" and self.lost is not None:
                self.lost.before(path, None)
            return
        left_ms = self._hangs_for_ms(operation, path)
        if left_ms > 0:
            self._wait(Waiting(f"the disk, to {operation} {path}", self._now_ms), left_ms)
        else:
            _schedule.pass_place()
        if operation == "sync" and self.lost is not None:
            self.lost.before(path, self.running)  # no other thread runs before the operation

    def _hangs_for_ms(self, operation: str, path: str) -> float:
        found = [
            until_ms
            for (part, operations), until_ms in self._hangs.items()
            if operation in operations and part in path
        ]
        return max(found, default=0) - self._now_ms

    # --- locks of Python --------------------------------------------------------------------------

    def lock(self) -> ScheduledLock:
        return ScheduledLock(self, _place_of(sys._getframe(2)))

    def condition(self, lock: ScheduledLock | None = None) -> ScheduledCondition:
        return ScheduledCondition(self, lock or ScheduledLock(self, _place_of(sys._getframe(2))))


def _place_of(frame: Any) -> str:
    return f"{frame.f_globals['__name__']}:{frame.f_lineno}"


class ScheduledLoop(StepLoop):
    """The world's loop, beside whose callbacks the threads have their turns."""

    def __init__(self, after_step: Callable[[], None], scheduler: Scheduler) -> None:
        super().__init__(after_step)
        self._scheduler = scheduler
        scheduler.loop = self

    def step(self) -> bool:
        return self._run_until(float("inf"), 1)

    def _run_until(self, end_s: float, turns_max: int = sys.maxsize) -> bool:
        return all(self._next(end_s) for _ in range(turns_max))

    def _next(self, end_s: float) -> bool:
        scheduler = self._scheduler
        able = scheduler.able()
        if not able or (self._ready and not scheduler.prefers_threads()):
            return super()._run_until(end_s, 1)
        scheduler.go_on(able)
        self.steps += 1
        if self._failure is not None:
            raise self._failure
        self._after_step()
        return True


def _no_listener(rule: str, detail: str) -> None:
    raise AssertionError(f"{rule}: {detail}")


@contextmanager
def scheduled(dice: random.Random) -> Iterator[Scheduler]:
    """Brokers that are made in here have threads, whose turns the dice decide."""
    if not DEBUG_BUILD:
        raise RuntimeError("threads are scheduled in a debug build alone: make test-debug")
    scheduler = Scheduler(dice)
    real_lock, real_condition = threading.Lock, threading.Condition

    def lock() -> Any:
        return scheduler.lock() if _is_ours(sys._getframe(1)) else real_lock()

    def condition(of: Any = None) -> Any:
        return scheduler.condition(of) if _is_ours(sys._getframe(1)) else real_condition(of)

    _schedule.install(scheduler)
    try:
        with (
            mock.patch.object(threading, "Lock", lock),
            mock.patch.object(threading, "Condition", condition),
        ):
            yield scheduler
    finally:
        scheduler.close()
        _schedule.remove()


def _is_ours(frame: Any) -> bool:
    name = frame.f_globals["__name__"]
    return name.startswith(_OURS) and name not in _LEAVES
