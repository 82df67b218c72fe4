"""The lanes of the data directories: who decides which logs there are waits for no disk.

Place in the flow: the replica manager, on the controller's thread, has logs opened, closed and
removed here. Each data directory has one lane (`lane.py`), so what is done to one log is done in
its order, and a directory that hangs keeps no other waiting. Where a log is, or begins, is known
without a look at a disk (`DataDirectory.names`). A new log begins where the lane goes on.

Work that is `put` is waited for together, until STUCK_MS after the last sign of life of a lane. A
log that is not open then is refused with LogNotReadyError and named to `ready` when it is, or will
not be: it can be taken then. Of deleted topics whose files are not renamed then, `removing` says
the ids; `ready` is called when that is over, too.

`ready` is called on a lane's thread, everything else on the controller's, `stop` on the main one.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.opening.recovery import LogNotReadyError
from kbroker.log.upkeep.lane import AtOnce, Lane, MakeLane, Work, at_once, replace_lane
from kbroker.log_lines import LogLines
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.log.manager import LogManager
    from kbroker.log.opening.data_directory import DataDirectory
    from kbroker.own_thread import OwnThread

logger: Final = logging.getLogger("kbroker.log")
lines: Final = LogLines(logger)

# A disk that takes longer for one log hangs, as far as others are concerned.
STUCK_MS: Final = 500
# At most so many wait in one lane; what closes logs comes on top, each of which was open.
LANE_WORK_MAX: Final = 100_000
# Names that are ready wait for each other at most so long.
READY_TOGETHER_NS: Final = 1_000 * NS_PER_MS


class _Opening(Work):
    """A log that is to be opened; taken once, or given up."""

    __slots__ = ("directory", "log", "logs", "made", "name", "only", "opened", "topic_id", "wanted")

    def __init__(
        self,
        logs: LogManager,
        name: TopicPartition,
        topic_id: UUID,
        directory: DataDirectory | None,
        settings: Mapping[str, Any],
        new: bool,
        opened: Callable[[PartitionLog], Any],
    ) -> None:
        """`directory`: in whose lane it is opened."""
        super().__init__(partial(self.open, settings, new))
        self.logs: Final = logs
        self.name: Final = name
        self.topic_id: Final = topic_id
        self.directory: Final = directory
        self.only = directory  # no other one is looked at
        self.opened: Final = opened
        self.log: PartitionLog | None = None
        self.made: Any = None
        self.wanted = True

    def open(self, settings: Mapping[str, Any], new: bool) -> None:
        if self.wanted:
            self.log = self.logs.open(*self.name, self.topic_id, settings, new=new, only=self.only)
            try:
                self.made = self.opened(self.log)
            except BaseException:
                self.logs.close(self.log)
                raise

    def close(self) -> None:
        """It was not taken."""
        if self.log is not None:
            self.logs.close(self.log)


class LogLanes:
    """See the head of this file."""

    def __init__(
        self,
        logs: LogManager,
        clock: Clock,
        make: MakeLane = at_once,
        ready: Callable[[Sequence[TopicPartition]], None] = lambda names: None,
    ) -> None:
        self._ready: Final = ready
        self._logs: Final = logs
        self._clock: Final = clock
        self._make: Final = make
        self._lanes: dict[DataDirectory, Lane] = {}
        self._opening: dict[TopicPartition, _Opening] = {}
        self._removing: list[tuple[frozenset[UUID], list[Work]]] = []
        self._put: dict[DataDirectory, list[Work]] = {}  # since the last `wait`
        self._lock: Final = threading.Lock()
        self._over: list[TopicPartition] = []  # that were late, not named yet
        self._over_since_ns = 0  # 0: there is nothing to be said

    # --- Logs -------------------------------------------------------------------------------------

    def begin(
        self,
        name: TopicPartition,
        topic_id: UUID,
        settings: Mapping[str, Any],
        *,
        new: bool,
        opened: Callable[[PartitionLog], Any] = lambda log: log,
    ) -> None:
        """Have a log opened, to be taken after `wait`. As of `LogManager.open`. `opened` is called
        with it where the disk may be waited for, on a lane's thread, and makes what is taken."""
        opening = self._opening.get(name)
        if opening is not None:
            if opening.topic_id == topic_id:
                return
            self.give_up(name)
        directory, is_only = self._directory_of(name)
        opening = _Opening(self._logs, name, topic_id, directory, settings, new, opened)
        opening.only = directory if is_only else None
        self._opening[name] = opening
        self._add(directory, opening)

    def take(self, name: TopicPartition, topic_id: UUID, settings: Mapping[str, Any]) -> Any:
        """It is the caller's; KafkaError: why it is not open. LogNotReadyError: not yet."""
        opening = self._opening.get(name)
        if opening is None or opening.topic_id != topic_id or not opening.over:
            raise LogNotReadyError(name, "is not open yet: its data directory does not answer")
        del self._opening[name]
        if opening.error is not None:
            raise opening.error
        log = opening.log
        if log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} was given up")
        if opening.late:
            log.configure(**settings)
        return opening.made

    def give_up(self, name: TopicPartition) -> None:
        """It is not wanted any more; its files stay."""
        opening = self._opening.pop(name, None)
        if opening is not None:
            opening.wanted = False
            self._add(opening.directory, Work(opening.close))

    def close(self, log: PartitionLog) -> None:
        """Have it closed; its files stay."""
        self.after(log, partial(self._logs.close, log))

    def after(self, log: PartitionLog, call: Callable[[], object]) -> None:
        """Has this done after all other work on the log, where that is done."""
        self._add(self._directory_at(log), Work(call))

    def delete_topic_directories(self, deleted: Mapping[UUID, str]) -> None:
        """As of the log manager, after all other work on logs of those topics."""
        works = [
            self._add(each, Work(partial(self._logs.delete_topic_directories, deleted, each)))
            for each in self._logs.usable
        ]
        self._removing.append((frozenset(deleted), works))

    def make_names_last(self) -> None:
        """As of the log manager, where something was done since the last `wait`."""
        for each in list(self._put):
            self._add(each, Work(partial(self._logs.make_names_last, each)))

    def set_aside_strays(self, is_here: Callable[[TopicPartition, UUID], bool]) -> None:
        """As of the log manager; not waited for."""
        for each in self._logs.usable:
            self._add(each, Work(partial(self._logs.set_aside_strays, is_here, each)))
        self._put.clear()

    # --- Waiting ----------------------------------------------------------------------------------

    def wait(self, stuck_ms: int = STUCK_MS) -> bool:
        """For all that was put since the last time, but for work in a lane that is stuck. Raises
        the error of any of it, other than the opening of a log. False: something is late."""
        put, self._put = self._put, {}
        error: Exception | None = None
        for directory, works in put.items():
            lane = self._lane(directory)
            lane.wait(works, stuck_ms)
            if lane.is_lost:
                self._lane(directory).wait(works, stuck_ms)
            if any(work.late for work in works):
                self._log_stuck(directory)
            for work in works:
                if work.over and not isinstance(work, _Opening):
                    error = error or work.error
        if error is not None:
            raise error
        return not any(work.late for works in put.values() for work in works)

    @staticmethod
    def _log_stuck(directory: DataDirectory) -> None:
        path = str(directory.path)
        message = "%s does not answer: logs there are opened and removed when it does"
        lines.write(logging.WARNING, path, message, path)

    def removing(self) -> frozenset[UUID]:
        """Deleted topics whose logs may still be there."""
        self._removing = [it for it in self._removing if not all(work.over for work in it[1])]
        return frozenset(topic_id for ids, _ in self._removing for topic_id in ids)

    def _work_over(self, directory: DataDirectory, work: Work, late: bool) -> None:
        """On the lane's thread."""
        if late and work.error is not None and not isinstance(work.error, KafkaError):
            logger.error("%s: %s", directory.path, work.error)
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            if late:
                self._over_since_ns = self._over_since_ns or now_ns
                if isinstance(work, _Opening) and work.wanted:
                    self._over.append(work.name)
            is_time = now_ns - self._over_since_ns > READY_TOGETHER_NS
            if not self._over_since_ns or not (is_time or not self._lanes[directory].left):
                return
            names, self._over, self._over_since_ns = self._over, [], 0
        self._ready(names)

    # --- Lanes ------------------------------------------------------------------------------------

    def _add(self, directory: DataDirectory | None, work: Work) -> Work:
        if directory is None:  # there is no disk to wait for
            AtOnce().put(work)
            return work
        lane = self._lane(directory)
        if isinstance(work, _Opening) and lane.left >= LANE_WORK_MAX:
            full = f"{directory.path} does not answer, and too much waits for it"
            work.error, work.over = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, full), True
            return work
        lane.put(work)
        self._put.setdefault(directory, []).append(work)
        return work

    def _lane(self, directory: DataDirectory) -> Lane:
        lane = self._lanes.get(directory)
        if lane is None:
            lane = self._make(partial(self._work_over, directory), self._clock)
            self._lanes[directory] = lane
        elif lane.is_lost:
            fresh = self._make(partial(self._work_over, directory), self._clock)
            try:
                replace_lane(lane, fresh)
            except (RuntimeError, MemoryError) as error:
                logger.error("%s: no thread begins for one that is lost: %s", directory.path, error)
                return lane
            logger.error("%s: the thread for its logs is lost, and is replaced", directory.path)
            lane = self._lanes[directory] = fresh
        return lane

    def _directory_of(self, name: TopicPartition) -> tuple[DataDirectory | None, bool]:
        """Where the log is or begins, and whether it is sure to be nowhere else: another topic may
        have left one of that name."""
        usable = self._logs.usable
        if len(usable) < 2:
            return (usable[0] if usable else None), True
        if here := [each for each in usable if name in each.names]:
            return here[0], len(here) == 1
        going_on = [each for each in usable if not self._lane(each).is_stuck(STUCK_MS)]
        pending = Counter(
            it.directory for it in self._opening.values() if it.directory and not it.over
        )
        return self._logs.emptiest(name, going_on or usable, pending), True

    def _directory_at(self, log: PartitionLog) -> DataDirectory | None:
        for held in self._logs.held([log.name]):
            if held.log is log:
                return held.directory
        return None

    # --- Life -------------------------------------------------------------------------------------

    def stop(self) -> frozenset[DataDirectory]:
        """After all that was put; the directories whose lanes do not come to an end."""
        return frozenset(it for it in list(self._lanes) if not self._lane(it).stop())

    @property
    def threads(self) -> Iterator[OwnThread]:
        """Of the lanes; any thread."""
        for lane in list(self._lanes.values()):
            if lane.thread is not None and lane.thread.ident is not None:
                yield lane.thread
