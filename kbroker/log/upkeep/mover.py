"""Logs that move from one data directory of this broker to another, as AlterReplicaLogDirs asks.

One thread moves one log after another (`log_move.py`), at
`replica.alter.log.dirs.io.max.bytes.per.second`; it ends when there is none. A move that a stop or
a crash ends is begun again by the next start. A log whose move fails stays where it is, with a
line.

One lock, a leaf: the logs to be moved, and those to begin elsewhere. Requests come from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.log.engine._results import FutureLog
from kbroker.log.engine.partition_log import DIRECTORY_NAME_CHARS_MAX
from kbroker.log.opening.placement import directory_at
from kbroker.log.upkeep.log_move import FUTURE_CHARS, LogMove
from kbroker.own_thread import OwnThread

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kbroker.clock import Clock
    from kbroker.log.opening.data_directory import DataDirectory
    from kbroker.log.opening.directory_trouble import DirectoryTrouble
    from kbroker.log.opening.held_log import HeldLog
    from kbroker.log.upkeep.log_move import Unfinished
    from kbroker.log.upkeep.removals import Removals
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

PREFERRED_MAX: Final = 10_000
WAIT_S_MAX: Final = 1.0  # before the rate is looked at again


class Logs(Protocol):
    """What the mover asks of the log manager."""

    @property
    def usable(self) -> list[DataDirectory]: ...

    @property
    def trouble(self) -> DirectoryTrouble: ...

    @property
    def removals(self) -> Removals: ...

    def held(self, names: Iterable[TopicPartition]) -> list[HeldLog]: ...

    def moving(
        self, held: HeldLog, directory: DataDirectory
    ) -> AbstractContextManager[Callable[[], None]]: ...


class _Asked(NamedTuple):
    directory: DataDirectory
    number: int  # another one is another move


class _Stopped(Exception):
    """The mover is being stopped."""


class _CalledOff(Exception):
    """Another directory was asked for, or the log is gone."""


class _Pace:
    """What was copied since the rate is what it is."""

    def __init__(self, clock: Clock) -> None:
        self.copied = 0
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._rate = 0.0

    def left_ms(self, rate: float) -> float:
        """Until more may be copied."""
        now_ms = self._clock.monotonic_ms()
        if rate != self._rate:
            self.copied, self._began_ms, self._rate = 0, now_ms, rate
        return self._began_ms + self.copied / rate * 1000 - now_ms


class LogMover:
    """See the head of this file."""

    def __init__(
        self,
        logs: Logs,
        paths: Sequence[Path],
        bytes_per_second: Callable[[], float],
        clock: Clock,
        stopping: threading.Event | None = None,
    ) -> None:
        """`paths` are those of `log.dirs`. `stopping` is what its thread waits on; a test's own may
        turn a clock instead."""
        self.unfinished: list[Unfinished] = []  # as the start has found them
        self._logs: Final = logs
        self._bytes_per_second: Final = bytes_per_second
        self._paths: Final = frozenset(os.path.abspath(each) for each in paths)
        self._clock: Final = clock
        self._stopping: Final = stopping or threading.Event()
        self._starting: Final = threading.Lock()
        self._thread: OwnThread | None = None
        self._lock: Final = threading.Lock()
        self._asked: dict[TopicPartition, _Asked] = {}
        self._numbers = 0
        self._preferred: dict[TopicPartition, DataDirectory] = {}
        self._move: LogMove | None = None

    # --- Requests, from any thread ----------------------------------------------------------------

    def ask(self, name: TopicPartition, path: str) -> None:
        """Moves a log to the data directory at `path`, soon. KafkaError: why not."""
        self._ask(name, path, None)

    def _ask(self, name: TopicPartition, path: str, cut: Unfinished | None) -> None:
        """`cut`: the move that is to go on, unless a request has come for that log meanwhile."""
        topic, partition = name  # a request names thousands: the name itself is not made
        if len(topic) + 1 + len(str(partition)) + FUTURE_CHARS > DIRECTORY_NAME_CHARS_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name}: too long a name to move")
        directory = directory_at(path, self._paths, self._logs.usable)
        held = self._held(name)
        with self._lock:
            if cut is not None and not any(each is cut for each in self.unfinished):
                return
            if held is None:
                self._prefer_locked(name, directory)
                self._settle_cut_locked(name, cut)
                raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{name} is not here yet")
            asked = self._asked.get(name)
            if asked is None or asked.directory is not directory:
                self._ask_locked(name, held, directory)
            self._settle_cut_locked(name, cut)
        self._follow()  # where a thread could not start before, the same request starts it

    def _ask_locked(self, name: TopicPartition, held: HeldLog, directory: DataDirectory) -> None:
        if not held.log.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline")
        self._asked.pop(name, None)
        # One that is on its way may be there before it is called off, and comes back then.
        is_moving = self._move is not None and self._move.log is held.log
        if held.directory is not directory or is_moving:
            self._numbers += 1
            self._asked[name] = _Asked(directory, self._numbers)

    def _settle_cut_locked(self, name: TopicPartition, cut: Unfinished | None) -> None:
        """A request for a log is later than its move that was cut; that does not go on."""
        if cut is None and self.unfinished:
            self.unfinished = [each for each in self.unfinished if each.name != name]

    def begin_again(self) -> None:
        """What the last stop or crash has ended, of those logs that are open by now."""
        for it in [each for each in self.unfinished if self._held(each.name) is not None]:
            try:
                self._ask(it.name, os.path.abspath(it.directory.path), it)
            except KafkaError as error:
                logger.warning("%s is not moved on: %s", it.name, error)
            # Where a thread could not start it stays, and so do those after it.
            with self._lock:
                self.unfinished = [each for each in self.unfinished if each is not it]

    def _held(self, name: TopicPartition) -> HeldLog | None:
        return next(iter(self._logs.held([name])), None)

    def _prefer_locked(self, name: TopicPartition, directory: DataDirectory) -> None:
        while len(self._preferred) >= PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[name] = directory

    def preferred(self, name: TopicPartition) -> DataDirectory | None:
        """Where a log that begins now is to be, if that was asked for; once."""
        with self._lock:
            directory = self._preferred.pop(name, None)
        return directory if directory in self._logs.usable else None

    def futures(self) -> list[FutureLog]:
        """Logs on their way."""
        with self._lock:
            asked, move = dict(self._asked), self._move
        found = []
        for name, (directory, _) in asked.items():
            held = self._held(name)
            if held is None or held.directory is directory:
                continue
            copied, to = 0, held.log.log_start_offset
            if move is not None and move.log is held.log:
                copied, to = move.copied_bytes, move.copied_to
            lag = max(0, held.log.log_end_offset - to)
            found.append(FutureLog(name, os.path.abspath(directory.path), copied, lag))
        return found

    # --- Life -------------------------------------------------------------------------------------

    def _follow(self) -> None:
        with self._starting:
            if self._stopping.is_set() or not self._asked:
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = OwnThread("kbroker-log-mover", self._run)
                self._thread.start()

    def stop(self) -> None:
        """Ends the thread, within a piece or the last step of a move."""
        self._stopping.set()
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.await_end()

    @property
    def thread(self) -> OwnThread | None:
        return self._thread

    def _run(self) -> None:
        with contextlib.suppress(_Stopped):
            self.move_all()

    def _next(self) -> tuple[TopicPartition, _Asked] | None:
        """None: there is none, and this thread ends."""
        with self._starting, self._lock:
            if self._stopping.is_set() or not self._asked:
                self._thread = None
                return None
            return next(iter(self._asked.items()))

    # --- Moving -----------------------------------------------------------------------------------

    def move_all(self) -> None:
        """What is asked for, on the caller's thread."""
        while (taken := self._next()) is not None:
            self._move_one(*taken)

    def _move_one(self, name: TopicPartition, asked: _Asked) -> None:
        directory = asked.directory
        held = self._held(name)
        if held is None or not held.log.online or held.directory is directory:
            self._forget(name, asked)
            return
        move = LogMove(held.log, directory.path)
        with self._lock:
            self._move = move
        began_ms = self._clock.monotonic_ms()
        try:
            self._carry(move, held, asked)
        except _Stopped:
            move.give_up()
            raise
        except _CalledOff:
            self._call_off(move, directory)
        except (OSError, MemoryError, InvariantError) as error:
            logger.error("%s stays in %s: %s", name, held.directory.path, error)
            self._call_off(move, directory)
            self._logs.trouble.look_at(directory)
        else:
            took_ms = self._clock.monotonic_ms() - began_ms
            logger.info("%s is in %s now; that took %d ms", name, directory.path, took_ms)
        finally:
            with self._lock:
                self._move = None
            for path in move.left_over:
                self._logs.removals.schedule(path)
        self._forget(name, asked)

    def _carry(self, move: LogMove, held: HeldLog, asked: _Asked) -> None:
        pace = _Pace(self._clock)
        move.begin()
        while True:
            for piece in move.copy():
                pace.copied += piece
                self._go_on(move, asked, pace)
            self._go_on(move, asked, pace)
            if move.swap(lambda: self._logs.moving(held, asked.directory)):
                return

    def _go_on(self, move: LogMove, asked: _Asked, pace: _Pace) -> None:
        """When that is due."""
        while True:
            current = self._asked.get(move.log.name)
            if current != asked or not move.log.online or asked.directory.failed:
                raise _CalledOff
            if self._stopping.is_set():
                raise _Stopped
            left_ms = pace.left_ms(max(1.0, self._bytes_per_second()))
            if left_ms < 1:
                return
            self._stopping.wait(min(left_ms / 1000, WAIT_S_MAX))

    def _call_off(self, move: LogMove, directory: DataDirectory) -> None:
        if directory.failed:
            move.give_up()
        elif (left := move.call_off()) is not None:
            self._logs.removals.delete_now(left)

    def _forget(self, name: TopicPartition, asked: _Asked) -> None:
        with self._lock:
            if self._asked.get(name) == asked:
                del self._asked[name]
