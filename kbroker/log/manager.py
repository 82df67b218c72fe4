"""LogManager: every log of this broker, over one or more data directories.

    start        takes the directories, reads their checkpoints, recovers logs after a crash
    open         the log of a partition: its directory, or a new one where there are fewest
    checkpoint   in the background: rolled segments to the disk, snapshots, high watermarks
    checkpoint_recovery_points, flush_old, remove_deleted    likewise, each at its own pace
    checkpoint_log_starts    before DeleteRecords is answered
    delete       renames the directory; the files go later
    stop         closes every log, leaves the clean-shutdown mark, lets go of the directories

`open`, `close` and `delete` come from the controller's thread, the background work from the
scheduler's, `start` and `stop` from the main one, `checkpoint_log_starts` from any. One lock guards
the map of logs; no file is touched under it.
A log that cannot be opened is a KAFKA_STORAGE_ERROR for its partition, not the broker's end.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from kbroker.clock import Clock, SystemClock
from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.log import _describe, file_operations
from kbroker.log._results import DirectoryUse
from kbroker.log.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    read_partition_metadata,
)
from kbroker.log.closing import close_logs
from kbroker.log.data_directory import DataDirectory, in_threads, partition_of, remove_steps
from kbroker.log.loader import open_partition_log
from kbroker.log.partition_log import FILE_DELETE_DELAY_MS, PartitionLog, deleted_path
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

# A producer that is silent for a day may begin again with any sequence; looked for this often.
PRODUCER_EXPIRATION_MS: Final = 86_400_000
PRODUCER_EXPIRATION_CHECK_MS: Final = 600_000
STRAY_SUFFIX: Final = "-stray"
# So that a broker of ten thousand partitions gives up the GIL in between.
LOGS_SIZED_AT_ONCE: Final = 500
# A look at a log takes two microseconds, a step of the scheduler ten times that.
LOGS_LOOKED_AT_ONCE: Final = 100


@dataclass
class _Held:
    log: PartitionLog
    directory: DataDirectory
    failed_writes: int = 0  # as last told in the broker's log


class _Doomed(NamedTuple):
    """A file or a directory that is renamed already and goes after a while."""

    path: Path
    since_ms: int
    delay_ms: int | None  # None: the broker's, as it is when it is asked


class LogManager:
    """The logs of one broker. See the module for who calls what."""

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        recovery_threads: int = 1,
        segment_delete_delay_ms: int = FILE_DELETE_DELAY_MS,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        clock: Clock | None = None,
    ) -> None:
        self._directories: Final = [DataDirectory(path) for path in directories]
        self.recovery_threads = recovery_threads
        # Of directories; of a segment it is the topic's. May change at any time.
        self.segment_delete_delay_ms = segment_delete_delay_ms
        self._producer_expiration_ms: Final = producer_expiration_ms
        self._clock: Final[Clock] = clock or SystemClock()
        self._expire_at_ms = self._clock.monotonic_ms() + PRODUCER_EXPIRATION_CHECK_MS
        self._lock: Final = threading.Lock()
        self._logs: dict[TopicPartition, _Held] = {}
        self._recovered: dict[TopicPartition, _Held] = {}
        self._doomed: list[_Doomed] = []

    # --- Start and stop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Takes every directory; raises DataDirectoryError with what a person can do."""
        opened: list[DataDirectory] = []
        try:
            for directory in self._directories:
                directory.open()
                opened.append(directory)
        except DataDirectoryError:
            for directory in opened:
                directory.close(clean=directory.clean)
            raise
        for directory in self._directories:
            self._doomed += [_Doomed(path, 0, 0) for path in directory.deleted()]
            if not directory.clean:
                self._recover(directory)

    @property
    def clean(self) -> bool:
        """Whether every directory was left in order; after a crash a log's tail may be lost."""
        return all(directory.clean for directory in self._directories)

    def _recover(self, directory: DataDirectory) -> None:
        """After a crash: opens every log here, several at a time, before anybody asks for it."""

        def open_one(path: Path) -> None:
            name = partition_of(path.name)
            try:
                topic_id = read_partition_metadata(path / PARTITION_METADATA_FILE)
                if name is None or topic_id is None:
                    return
                log = open_partition_log(
                    path, name.topic, name.partition, topic_id, {}, directory.checkpointed(name)
                )
            except (OSError, CheckpointError, KafkaError) as error:
                # It is asked for again by `open`, which tells whoever wants it.
                logger.error("%s cannot be recovered: %s", path, error)
                return
            with self._lock:
                self._recovered[name] = _Held(log, directory)

        paths = list(directory.logs().values())
        if not paths:
            return
        began_ms = self._clock.monotonic_ms()
        in_threads(self.recovery_threads, open_one, paths)
        logger.info(
            "recovered %d logs in %s in %d ms", len(paths), directory.path,
            self._clock.monotonic_ms() - began_ms,
        )  # fmt: skip

    def stop(self) -> None:
        """Closes every log. Where one cannot be, its directory is left without the mark."""
        with self._lock:
            held = {**self._recovered, **self._logs}
            self._logs, self._recovered = {}, {}
        for directory in self._directories:
            logs = {name: it.log for name, it in held.items() if it.directory is directory}
            clean = close_logs(directory.path, list(logs.values()), self.recovery_threads)
            try:
                self._write_recovery_points(directory, logs)
                self._write_high_watermarks(directory, logs)
                starts = _moved_starts(logs.values())
                directory.write_checkpoint(LOG_START_FILE, starts, sync=True)
                directory.close(clean=clean)
            except OSError as error:
                logger.error("%s was not closed cleanly: %s", directory.path, error)
                directory.close(clean=False)

    # --- Logs -------------------------------------------------------------------------------------

    def open(
        self, topic: str, partition: int, topic_id: UUID, settings: Mapping[str, Any]
    ) -> PartitionLog:
        """The log of a partition, open; `settings` as `PartitionLog.configure` takes them."""
        name = TopicPartition(topic, partition)
        with self._lock:
            known = self._logs.get(name)
            recovered = self._recovered.pop(name, None)
        if known is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} is open already")
        if recovered is not None and recovered.log.topic_id == topic_id:
            recovered.log.configure(**settings)
            held = recovered
        else:
            if recovered is not None:
                recovered.log.close()
            held = self._open(name, topic_id, settings)
        with self._lock:
            self._logs[name] = held
        return held.log

    def _open(self, name: TopicPartition, topic_id: UUID, settings: Mapping[str, Any]) -> _Held:
        directory, path = self._place(name)
        try:
            if path.exists() and not _belongs_to(path, topic_id):
                self._set_aside(directory, name, path)
            if not path.exists():
                self._begin_at_zero(directory, name)
            log = open_partition_log(
                path, name.topic, name.partition, topic_id, settings, directory.checkpointed(name)
            )
        except (OSError, CheckpointError) as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} cannot be opened: {error}"
            ) from error
        return _Held(log, directory)

    def _place(self, name: TopicPartition) -> tuple[DataDirectory, Path]:
        """Where the log is, or where it should be: the directory with the fewest."""
        for directory in self._directories:
            path = directory.path / str(name)
            if path.is_dir():
                return directory, path
        directory = self._directories[0]
        if len(self._directories) > 1:
            with self._lock:
                counts = Counter(id(held.directory) for held in self._logs.values())
            directory = min(self._directories, key=lambda each: counts[id(each)])
        return directory, directory.path / str(name)

    def _set_aside(self, directory: DataDirectory, name: TopicPartition, path: Path) -> None:
        """Another topic of the same name was here: kept under another name, never appended to."""
        target = path.with_name(f"{path.name[:200]}.{uuid4().hex}{STRAY_SUFFIX}")
        file_operations.rename(path, target)
        directory.forget(name)
        logger.warning("%s held another topic %s; it is now %s", path, name.topic, target.name)

    def _begin_at_zero(self, directory: DataDirectory, name: TopicPartition) -> None:
        """A new log: what a deleted one of the same name left in the checkpoints is not its own."""
        directory.forget(name)
        if directory.holds_start_of(name):
            self._write_log_starts(directory, sync=True)

    def close(self, log: PartitionLog) -> None:
        """Closes one log; its files stay."""
        self._forget(log)
        log.close()

    def delete(self, log: PartitionLog) -> None:
        """Ends one log; its files go later, so that whoever reads them can finish."""
        held = self._forget(log)
        if held is not None:
            held.directory.forget(log.name)
        try:
            self._doom(log.delete())
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {log.name} cannot be deleted: {error}"
            ) from error

    def delete_topic_directories(self, topic: str, topic_id: UUID) -> None:
        """Removes what a crash between the metadata and the files left of a deleted topic."""
        for directory in self._directories:
            for name, path in directory.logs().items():
                if name.topic != topic or not _belongs_to(path, topic_id, unknown=False):
                    continue
                with self._lock:
                    is_open = name in self._logs
                    recovered = self._recovered.pop(name, None) if not is_open else None
                if is_open:
                    continue
                if recovered is not None:
                    recovered.log.close(clean=False)
                directory.forget(name)
                target = deleted_path(path)
                file_operations.rename(path, target)
                self._doom(target)

    def _forget(self, log: PartitionLog) -> _Held | None:
        with self._lock:
            held = self._logs.get(log.name)
            if held is None or held.log is not log:
                return None
            return self._logs.pop(log.name)

    def _doom(self, path: Path, delay_ms: int | None = None) -> None:
        with self._lock:
            self._doomed.append(_Doomed(path, self._clock.monotonic_ms(), delay_ms))

    # --- In the background ------------------------------------------------------------------------

    def checkpoint(self) -> Iterator[None]:
        """One round of the background work, in steps. Runs on the scheduler's thread."""
        with self._lock:
            held = list(self._logs.values())
        for looked_at, it in enumerate(held, start=1):
            self._tell_failed_writes(it)
            worked = self._trim(it.log)
            worked |= self._flush(it.log, it.log.flush_rolled)
            if worked or looked_at % LOGS_LOOKED_AT_ONCE == 0:
                yield
        for directory in self._directories:
            logs = {it.log.name: it.log for it in held if it.directory is directory}
            try:
                self._write_high_watermarks(directory, logs)
                self._write_log_starts(directory, sync=True)
            except OSError as error:
                logger.error("%s: checkpoints cannot be written: %s", directory.path, error)
            yield
        yield from self._expire_producers(held)

    def checkpoint_recovery_points(self) -> Iterator[None]:
        """Puts the recovery points where a later start finds them: log.flush.offset.checkpoint."""
        for directory in self._directories:
            with self._lock:
                held = list(self._logs.items())
            logs = {name: it.log for name, it in held if it.directory is directory}
            try:
                self._write_recovery_points(directory, logs)
            except OSError as error:
                logger.error("%s: checkpoints cannot be written: %s", directory.path, error)
            yield

    def flush_old(self) -> Iterator[None]:
        """Brings to the disk what waits for it longer than `flush.ms`. A log that fails is told."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            held = list(self._logs.values())
        for looked_at, it in enumerate(held, start=1):
            log = it.log
            due = log.recovery_point < log.log_end_offset and (
                now_ms - log.flushed_ms >= log.flush_ms
            )
            if due:
                self._flush(log, log.flush)
            if due or looked_at % LOGS_LOOKED_AT_ONCE == 0:
                yield

    @staticmethod
    def _flush(log: PartitionLog, flush: Callable[[], int]) -> bool:
        """Whether there was anything to flush, by the number that `flush` answers."""
        try:
            return bool(flush())
        except OSError as error:
            logger.error("%s cannot be flushed: %s", log.name, error)
            return False

    @staticmethod
    def _tell_failed_writes(held: _Held) -> None:
        """One line a round for what producers were answered as KAFKA_STORAGE_ERROR."""
        figures = held.log.statistics()
        failed = figures["failed_writes"] + figures["failed_flushes"]
        if failed > held.failed_writes:
            logger.error(
                "%s: %d writes failed since the last look; is %s full, or read-only?",
                held.log.name, failed - held.failed_writes, held.directory.path,
            )  # fmt: skip
            held.failed_writes = failed

    def _trim(self, log: PartitionLog) -> bool:
        """Segments below the log's start go as a deleted log does: renamed now, removed later.

        True if there were any.
        """
        try:
            renamed = log.trim()
        except OSError as error:
            if log.online:  # else deleted meanwhile
                logger.error("%s: segments below its start cannot be removed: %s", log.name, error)
            return False
        for path in renamed:
            self._doom(path, log.file_delete_delay_ms)
        return bool(renamed)

    def checkpoint_log_starts(self, logs: Iterable[PartitionLog]) -> None:
        """Puts the starts of these logs where a later start of the broker finds them.

        On return they survive the end of this process; a power cut is survived from the next
        round of `checkpoint` on. OSError if a file cannot be written. Any thread.
        """
        with self._lock:
            directories = {
                id(held.directory): held.directory
                for held in (self._logs.get(log.name) for log in logs)
                if held is not None
            }
        for directory in directories.values():
            self._write_log_starts(directory, sync=False)

    def _write_log_starts(self, directory: DataDirectory, *, sync: bool) -> None:
        with directory.log_starts_lock:
            with self._lock:
                logs = [it.log for it in self._logs.values() if it.directory is directory]
            directory.write_checkpoint(LOG_START_FILE, _moved_starts(logs), sync=sync)

    def _expire_producers(self, held: Sequence[_Held]) -> Iterator[None]:
        if self._clock.monotonic_ms() < self._expire_at_ms:
            return
        self._expire_at_ms = self._clock.monotonic_ms() + PRODUCER_EXPIRATION_CHECK_MS
        before_ms = self._clock.wall_ms() - self._producer_expiration_ms
        for looked_at, it in enumerate(held, start=1):
            it.log.expire_producers(before_ms)
            if looked_at % LOGS_LOOKED_AT_ONCE == 0:
                yield

    def remove_deleted(self) -> Iterator[None]:
        """Removes what was deleted and has waited for `file.delete.delay.ms`, file by file."""
        now_ms = self._clock.monotonic_ms()
        brokers_ms = self.segment_delete_delay_ms
        due: list[_Doomed] = []
        stay: list[_Doomed] = []
        with self._lock:
            for it in self._doomed:
                delay_ms = brokers_ms if it.delay_ms is None else it.delay_ms
                (due if it.since_ms + delay_ms <= now_ms else stay).append(it)
            self._doomed = stay
        for it in due:
            yield from remove_steps(it.path)

    @staticmethod
    def _write_recovery_points(
        directory: DataDirectory, logs: Mapping[TopicPartition, PartitionLog]
    ) -> None:
        # A promise to a later start, where recovery may begin: this file has to be on the disk.
        directory.write_checkpoint(
            RECOVERY_POINT_FILE, {n: log.recovery_point for n, log in logs.items()}, sync=True
        )

    @staticmethod
    def _write_high_watermarks(
        directory: DataDirectory, logs: Mapping[TopicPartition, PartitionLog]
    ) -> None:
        directory.write_checkpoint(
            HIGH_WATERMARK_FILE, {n: log.high_watermark for n, log in logs.items()}, sync=False
        )

    # --- Numbers ----------------------------------------------------------------------------------

    def use_of_directories(self, wanted: Set[TopicPartition] | None) -> list[DirectoryUse]:
        """Every data directory with the logs in it, all or those wanted. From any thread."""
        with self._lock:
            held = list(self._logs.items())
        return [
            _use_of(
                directory.path,
                [
                    it.log
                    for name, it in held
                    if it.directory is directory and (wanted is None or name in wanted)
                ],
            )
            for directory in self._directories
        ]

    def statistics(self) -> dict[str, int]:
        """Figures for metrics and the admin page."""
        with self._lock:
            held = list(self._logs.values())
            doomed = len(self._doomed)
        return {
            "directories": len(self._directories),
            "logs": len(held),
            "bytes": sum(it.log.size_bytes for it in held),
            "directories_to_remove": doomed,
        }


def _moved_starts(logs: Iterable[PartitionLog]) -> dict[TopicPartition, int]:
    return {log.name: log.log_start_offset for log in logs if log.log_start_offset > 0}


def _belongs_to(path: Path, topic_id: UUID, *, unknown: bool = True) -> bool:
    """Whether the directory is that topic's; `unknown` is the answer if it has no id."""
    try:
        known = read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CheckpointError:
        return False
    return unknown if known is None else known == topic_id


def _use_of(path: Path, logs: list[PartitionLog]) -> DirectoryUse:
    absolute = os.path.abspath(path)
    try:
        volume = os.statvfs(path)
    except OSError as error:
        logger.error("%s cannot be asked for its size: %s", path, error)
        return DirectoryUse(absolute, True, [], -1, -1)
    sized: list[tuple[TopicPartition, int, int]] = []
    for first in range(0, len(logs), LOGS_SIZED_AT_ONCE):
        some = logs[first : first + LOGS_SIZED_AT_ONCE]
        sized += [
            (log.name, size_bytes, lag)
            for log, (size_bytes, lag) in zip(some, _describe.sizes(some), strict=True)
        ]
    return DirectoryUse(
        absolute,
        False,
        sized,
        volume.f_blocks * volume.f_frsize,
        volume.f_bavail * volume.f_frsize,
    )
