"""After a crash: the logs of one data directory are read, each of them before it is used.

Place in the flow: `LogManager.start` makes one for each directory that was not left in order. It
reads all at once (`finish`), or in threads of its own (`begin`) while others are served; a caller
without a thread for it, such as a simulation of several brokers, calls `step`. A log that is still
to be read is refused with LogNotReadyError when it is asked for (`claim`), and named (`take_ready`)
as soon as that is worth another try. A log of another topic under a wanted name is not waited for:
`free` ends its reading, at the next segment.

    waiting -> reading -> read, or the error that `claim` raises; once
       |          |
       +----------+-> free: not wanted, closed as the crash left it

Internal topics come first, since groups wait for theirs, then the logs with the least to read.

`claim` and `free` are the controller's thread's, `stop` the main one's, `abandon` any thread's. One
condition, a leaf; no file is touched under it. Freeing a log that is being read waits for that
segment, FREE_WAIT_MS at most.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine import file_operations
from kbroker.log.engine.checkpoints import (
    PARTITION_METADATA_FILE,
    CheckpointError,
    read_partition_metadata,
)
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.opening.data_directory import DataDirectory, in_threads
from kbroker.log.opening.placement import Place, may_be, topic_id_of
from kbroker.log.opening.recovery_progress import RecoveryProgress
from kbroker.own_thread import OwnThread
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

THREAD_NAME: Final = "kbroker-log"
FREE_WAIT_MS: Final = 5_000
_LOG_SUFFIX: Final = ".log"
_INTERNAL: Final = "__"  # what their names begin with

# Called in between while a log is opened; it raises to have that end.
GoOn = Callable[[], None]
OpenAt = Callable[[Place, TopicPartition, UUID, Mapping[str, Any], GoOn], PartitionLog]


class LogNotReadyError(KafkaError):
    """What a crash left of this log is still to be read, or the disk has not answered that has it;
    it is named when it is worth a try."""

    def __init__(self, name: TopicPartition, why: str = "is being recovered") -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} {why}")


class _GivenUpError(Exception):
    """The log that is being read is not wanted any more."""


class Found(NamedTuple):
    """The outcome of a recovery: logs that were not claimed, and those that are not read."""

    logs: dict[TopicPartition, PartitionLog]
    unread: frozenset[TopicPartition]


class _Reading:
    """One log in the hands of a thread."""

    def __init__(self, name: TopicPartition, path: Path) -> None:
        self.name: Final = name
        self.path: Final = path
        self.given_up = False


class Recovery:
    """See the head of this file."""

    def __init__(self, directory: DataDirectory, open_at: OpenAt, clock: Clock) -> None:
        self._directory: Final = directory
        self._open_at: Final = open_at
        self._clock: Final = clock
        self._changed: Final = threading.Condition()
        self._waiting = _in_order(directory)
        self._reading: dict[TopicPartition, _Reading] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._errors: dict[TopicPartition, KafkaError | OSError] = {}
        self._ids: dict[TopicPartition, UUID | None] = {}  # of those that are still to be read
        self._refused: set[TopicPartition] = set()  # named when they are read
        self._ready: list[TopicPartition] = []
        self._progress: Final = RecoveryProgress(directory.path, len(self._waiting), clock)
        self.threads: tuple[OwnThread, ...] = ()

    # --- Reading ----------------------------------------------------------------------------------

    def finish(self, threads: int) -> None:
        """Reads all, before any is asked for."""
        in_threads(threads, lambda _: self._work(), range(min(threads, len(self._waiting)) or 1))

    def begin(self, threads: int) -> None:
        """Read all, in threads that end by themselves."""
        count = min(threads, len(self._waiting))
        self.threads = tuple(OwnThread(THREAD_NAME, self._work) for _ in range(count))
        for thread in self.threads:
            thread.start()

    def wait(self, deadline_ns: int) -> bool:
        """Until nothing is left to be read; False if that takes longer."""
        with self._changed:
            while self._waiting or self._reading:
                if self._clock.monotonic_ns() >= deadline_ns:
                    return False
                self._clock.wait_until(self._changed, deadline_ns)
            return True

    def _work(self) -> None:
        while self.step():
            pass

    def step(self) -> bool:
        """Read the next one; False if there is none."""
        reading = self._next()
        if reading is None:
            return False
        try:
            self._read(reading)
        except BaseException:
            # Whatever the error, callers must not wait for this log for ever.
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its recovery failed, see above")
            self._done(reading, None, error)
            raise
        return True

    def _next(self) -> _Reading | None:
        with self._changed:
            if not self._waiting:
                return None
            name = next(iter(self._waiting))
            reading = self._reading[name] = _Reading(name, self._waiting.pop(name))
            return reading

    def _read(self, reading: _Reading) -> None:
        name, path = reading.name, reading.path

        def go_on() -> None:
            if reading.given_up:
                raise _GivenUpError(name)
            self._progress.look()

        log: PartitionLog | None = None
        error: KafkaError | OSError | None = None
        try:
            topic_id = read_partition_metadata(path / PARTITION_METADATA_FILE)
            if topic_id is not None:
                place = Place(self._directory, path, topic_id)
                try:
                    log = self._open_at(place, name, topic_id, {}, go_on)
                except OSError as once:
                    logger.warning("%s cannot be recovered, and is tried again: %s", path, once)
                    log = self._open_at(place, name, topic_id, {}, go_on)
        except _GivenUpError:
            pass
        except CheckpointError as unknown:
            # Only the metadata store knows its topic: the error is raised when it is opened.
            logger.warning("%s; it is read when its topic is opened", unknown)
        except (OSError, KafkaError) as failed:
            logger.error("%s cannot be recovered: %s", path, failed)
            error = failed
        self._done(reading, log, error)

    def _done(
        self, reading: _Reading, log: PartitionLog | None, error: KafkaError | OSError | None
    ) -> None:
        self._progress.one_more(0 if log is None else log.size_bytes)
        name = reading.name
        with self._changed:
            given_up = reading.given_up
            if not given_up:
                self._over_locked(reading)
                if log is not None:
                    self._logs[name] = log
                elif error is not None:
                    self._errors[name] = error
                if name in self._refused:
                    self._ready.append(name)
                is_last = not self._waiting and not self._reading
                log = None
            else:
                is_last = False
        if is_last:
            self._progress.end()
        if given_up:
            if log is not None:
                log.close(clean=False)
            with self._changed:  # as the last: its files are let go of
                self._over_locked(reading)
                if name in self._refused:
                    self._ready.append(name)

    def _over_locked(self, reading: _Reading) -> None:
        if self._reading.get(reading.name) is reading:
            del self._reading[reading.name]
        self._ids.pop(reading.name, None)
        self._changed.notify_all()

    # --- Who asks ---------------------------------------------------------------------------------

    def claim(self, name: TopicPartition, topic_id: UUID, *, new: bool) -> PartitionLog | None:
        """The log, which is the caller's then; None: this has none of that topic, and no other that
        is still read. LogNotReadyError, or the error of its reading: KafkaError, OSError."""
        with self._changed:
            log = self._logs.pop(name, None)
            error = self._errors.pop(name, None)
            is_left = name in self._waiting or name in self._reading
        if log is not None:
            if log.topic_id == topic_id:
                return log
            log.close(clean=False)  # as a crash left it: it is set aside
        elif (is_left or error) and self._may_be(name, topic_id, new):
            if error is not None:
                raise error
            self._refuse_if_left(name)
            return self.claim(name, topic_id, new=new)  # it was read meanwhile
        elif is_left and not self.free(name):
            self._refuse_if_left(name)
        return None

    def _may_be(self, name: TopicPartition, topic_id: UUID, new: bool) -> bool:
        """Whether that topic's log is there; it may be read, and its id be forgotten, meanwhile."""
        with self._changed:
            is_known, known = name in self._ids, self._ids.get(name)
        if not is_known:
            known = topic_id_of(self._directory.path / str(name))
            with self._changed:
                if name in self._waiting or name in self._reading:
                    self._ids[name] = known
        return known == topic_id or (not new and may_be(known, topic_id))

    def _refuse_if_left(self, name: TopicPartition) -> None:
        """It is named when it is read. Every refused name is named, for no later look comes when
        there is nothing left to be read or to be named."""
        with self._changed:
            if name in self._waiting or name in self._reading:
                self._refused.add(name)
                raise LogNotReadyError(name)

    def free(self, name: TopicPartition) -> bool:
        """It is not wanted: it is closed as a crash left it. False: it is being read still."""
        deadline_ns = self._clock.monotonic_ns() + FREE_WAIT_MS * NS_PER_MS
        with self._changed:
            self._waiting.pop(name, None)
            self._errors.pop(name, None)
            self._ids.pop(name, None)
            log = self._logs.pop(name, None)
            reading = self._reading.get(name)
            if reading is not None:
                reading.given_up = True
            while reading is not None and self._reading.get(name) is reading:
                if self._clock.monotonic_ns() >= deadline_ns:
                    return False
                self._clock.wait_until(self._changed, deadline_ns)
        if log is not None:
            log.close(clean=False)
        return True

    def take_ready(self) -> list[TopicPartition]:
        """Refused logs that are ready by now, or will never be; each once."""
        with self._changed:
            ready, self._ready = self._ready, []
            self._refused.difference_update(ready)
            return ready

    @property
    def left(self) -> int:
        """How many logs are still to be read."""
        with self._changed:
            return len(self._waiting) + len(self._reading)

    @property
    def unclaimed(self) -> int:
        """How many logs are not claimed yet, read or not."""
        with self._changed:
            return len(self._waiting) + len(self._reading) + len(self._logs)

    @property
    def is_over(self) -> bool:
        """Nothing is left to be read, nor to be named."""
        with self._changed:
            return not (self._waiting or self._reading or self._ready)

    # --- The end ----------------------------------------------------------------------------------

    def abandon(self) -> Found:
        """No further log is begun, and those that are being read end soon, unclaimed."""
        with self._changed:
            unread = frozenset((*self._waiting, *self._reading, *self._errors))
            for name in self._waiting:
                if name in self._refused:
                    self._ready.append(name)
            self._waiting.clear()
            for reading in self._reading.values():
                reading.given_up = True
            self._changed.notify_all()
            return Found(dict(self._logs), unread)

    def stop(self) -> tuple[Found, bool]:
        """The same, and the logs are the caller's; False: one is being read still."""
        unread = self.abandon().unread
        ended = all([thread.await_end() for thread in self.threads])
        with self._changed:
            logs, self._logs = self._logs, {}
        return Found(logs, unread), ended


def _in_order(directory: DataDirectory) -> dict[TopicPartition, Path]:
    """The logs there as they are to be read."""
    found = directory.logs()

    def rank(name: TopicPartition) -> tuple[bool, int, TopicPartition]:
        size_bytes = _bytes_to_read(found[name], directory.checkpointed(name).recovery_point)
        return not name.topic.startswith(_INTERNAL), size_bytes, name

    return {name: found[name] for name in sorted(found, key=rank)}


def _bytes_to_read(path: Path, recovery_point: int) -> int:
    """From the segment of the recovery point on; 0 for files that cannot be looked at."""
    try:
        sizes = {
            int(base): entry.stat().st_size
            for entry in file_operations.list_directory(path)
            if entry.name.endswith(_LOG_SUFFIX)
            and (base := entry.name.removesuffix(_LOG_SUFFIX)).isdecimal()
        }
    except OSError:
        return 0
    first = max((base for base in sizes if base <= recovery_point), default=0)
    return sum(size_bytes for base, size_bytes in sizes.items() if base >= first)
