"""LogManager: every log of this broker, over one or more data directories.

    start        takes the directories, reads their checkpoints, recovers logs after a crash
    open         the log of a partition: its directory, or a new one where there are fewest
    make_names_last    syncs the directories in which logs were made, set aside or deleted
    checkpoint   in the background: rolled segments to the disk, snapshots, high watermarks
    checkpoint_recovery_points, flush_old, remove_deleted    likewise, each at its own pace
    delete       renames the directory; the files go later
    stop         closes every log, leaves the clean-shutdown mark, lets go of the directories

What opens, closes and removes logs is called in the lane of the data directory that it touches
(`log_lanes.py`), the background work on the scheduler's thread, `start` and `stop` on the main one,
`checkpointing` on any. One lock guards the map of logs and the lines that are kept of closed ones;
no file is touched under it.
A log that cannot be opened is a KAFKA_STORAGE_ERROR for its partition, not the broker's end; what
the checkpoints say of it stays in them, and a directory in which a crash left one that cannot be
read gets no mark. A start that fails further on ends with `stop(as_found=True)`: nothing has been
written by then, so nothing is: the checkpoints stay, and the mark is there if it was there.
"""

from __future__ import annotations

import errno
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from kbroker.clock import Clock, SystemClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine import file_operations
from kbroker.log.engine._flush_times import FlushTimes
from kbroker.log.engine._results import DirectoryUse
from kbroker.log.engine.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    write_partition_metadata,
)
from kbroker.log.engine.listener import LogListener
from kbroker.log.engine.partition_log import FILE_DELETE_DELAY_MS, PartitionLog
from kbroker.log.looking.directory_use import use_of_all
from kbroker.log.opening import placement
from kbroker.log.opening.data_directory import CHECKPOINT_FILES, UNKNOWN_BOOT, DataDirectory
from kbroker.log.opening.directory_trouble import DirectoryTrouble
from kbroker.log.opening.held_log import HeldLog
from kbroker.log.opening.loader import goes_on, open_partition_log
from kbroker.log.opening.placement import Absence, Place
from kbroker.log.opening.recoveries import Recover, Recoveries
from kbroker.log.opening.recovery import Recovery
from kbroker.log.opening.wanting_room import WantingRoom
from kbroker.log.upkeep import leftovers
from kbroker.log.upkeep.checkpoint_lines import line_of, lines_of
from kbroker.log.upkeep.checkpointing import Checkpointing
from kbroker.log.upkeep.closing import close_logs, has_unread
from kbroker.log.upkeep.moves import Moves
from kbroker.log.upkeep.producer_expiry import (
    LOGS_LOOKED_AT_ONCE,
    PRODUCER_EXPIRATION,
    ProducerExpiry,
    Settings,
)
from kbroker.log.upkeep.removals import Removals
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

STRAY_SUFFIX: Final = "-stray"
NOTHING_ABSENT: Final = Absence()


class LogManager:
    """The logs of one broker. See the module."""

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        boot_id: str = UNKNOWN_BOOT,
        recovery_threads: int = 1,
        segment_delete_delay_ms: int = FILE_DELETE_DELAY_MS,
        config: Callable[[], Settings] = lambda: PRODUCER_EXPIRATION,
        clock: Clock | None = None,
        listener: LogListener,
        move_bytes_per_second: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`boot_id`: of the machine; see data_directory.py. `listener`: the replicas of the logs.
        `move_bytes_per_second`: how fast a log may go to another directory, as it is set now.
        `config`: the broker's settings as they are now, for the expiry of producers."""
        self._paths: Final = tuple(directories)
        self._directories = [DataDirectory(path, boot_id) for path in directories]
        self._absence = Absence()
        self.recovery_threads = recovery_threads
        self._clock: Final[Clock] = clock or SystemClock()
        self.flush_times: Final = FlushTimes()
        self.removals: Final = Removals(self._clock, segment_delete_delay_ms)
        self._producer_expiry: Final = ProducerExpiry(self._clock, config)
        self.listener: Final = listener
        self.moves: Final = Moves(self, self._paths, self._clock, move_bytes_per_second)
        self._lock: Final = threading.Lock()
        self._logs: dict[TopicPartition, HeldLog] = {}
        self.recoveries: Final = Recoveries(self._open_at, self._clock)
        self.wanting_room: Final = WantingRoom(lambda: self.usable)
        # Logs that could not be read after a crash, or not closed: no mark may vouch for them.
        self._unread: set[TopicPartition] = set()
        self._unsynced: set[DataDirectory] = set()
        self.checkpointing: Final = Checkpointing(self._lines, self.held)
        self.trouble: Final = DirectoryTrouble(self._clock, self._fail, listener)

    # --- Start and stop ---------------------------------------------------------------------------

    def start(
        self,
        absence: Absence = NOTHING_ABSENT,
        foreign: Collection[Path] = frozenset(),
        *,
        recover: Recover = Recovery.finish,
    ) -> None:
        """Takes every directory; raises DataDirectoryError with advice for the operator.

        Logs that are away according to `absence` are left alone, and a log that is missing is taken
        to be there. `foreign` directories are used, but this broker has not filled them. `recover`
        has what a crash left read, now or beside what is served (LogNotReadyError until then).
        """
        self._absence = absence
        self._directories = [it for it in self._directories if it.path not in absence.unused]
        try:
            for directory in self._directories:
                directory.open(foreign=directory.path in foreign)
            unfinished = self.moves.settle(self._directories)
            placement.refuse_copies(self._directories)  # which lists those of several
            deleted = [path for each in self._directories for path in each.deleted()]
            for path in [*deleted, *unfinished]:
                self.removals.delete_now(path)
            for directory in self._directories:
                if not directory.clean:
                    recover(self.recoveries.of(directory), self.recovery_threads)
        except BaseException:
            self.stop(as_found=True)
            raise

    @property
    def clean(self) -> bool:
        """Whether every directory was left in order; after a crash a log's tail may be lost."""
        return all(directory.clean for directory in self._directories)

    @property
    def lossy(self) -> bool:
        """Whether logs here may lack records that this broker has acknowledged."""
        return any(directory.lossy for directory in self._directories)

    def remember_boot(self) -> None:
        """The controller knows that they may; OSError if that cannot be written down."""
        for directory in self.usable:
            directory.remember_boot()

    def stop(
        self, *, as_found: bool = False, hanging: Collection[DataDirectory] = frozenset()
    ) -> None:
        """Closes every log. Where one cannot be, its directory is left without the mark.

        `as_found`: the start went no further, and the directories are left as they were found.
        `hanging`: in their lanes something is done still; they end with this process.
        """
        with self._lock:
            held, self._logs = self._logs, {}
        for directory in self._directories:
            if not directory.taken:
                continue
            found, ended = self.recoveries.stop(directory)
            if not ended or directory in hanging:  # with this process, and so does the lock
                continue
            self._unread |= found.unread
            opened = {name: it.log for name, it in held.items() if it.directory is directory}
            logs = {**found.logs, **opened}
            if not all(log.online or log.may_open_again for log in logs.values()):
                directory.distrust()
            if as_found or directory.failed:
                for log in logs.values():
                    log.close(clean=False)
                directory.give_back()
                continue
            clean = close_logs(directory.path, list(logs.values()), self.recovery_threads)
            try:
                for file in CHECKPOINT_FILES:
                    of = opened if file == CLEANER_FILE else logs  # who know if they compact
                    kept = directory.kept(file)
                    lines = lines_of(file, kept, of.values(), self.listener)
                    directory.write_checkpoint(file, lines)
                directory.close(clean=clean and not has_unread(directory, self._unread))
            except OSError as error:
                logger.error("%s was not closed cleanly: %s", directory.path, error)
                directory.close(clean=False)

    # --- Logs -------------------------------------------------------------------------------------

    def open(
        self,
        topic: str,
        partition: int,
        topic_id: UUID,
        settings: Mapping[str, Any],
        *,
        new: bool = True,
        only: DataDirectory | None = None,
    ) -> PartitionLog:
        """The log of a partition, open; `settings` as `PartitionLog.configure` takes them.

        `new`: the partition was made just now; else its log should be here, and one without a
        readable id is taken for it. `only`: where it is, or begins; no other directory is looked
        at.
        """
        name = TopicPartition(topic, partition)
        with self._lock:
            known = self._logs.get(name)
        if known is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} is open already")
        held = self._open(name, topic_id, settings, new, only)
        with self._lock:
            if not held.directory.failed:
                self._logs[name] = held
                self._unread.discard(name)
                held.directory.forget(name)
                return held.log
        held.log.abandon()
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{held.directory.path} has failed")

    def _open_at(
        self,
        place: Place,
        name: TopicPartition,
        topic_id: UUID,
        how: Mapping[str, Any],
        go_on: Callable[[], None] = goes_on,
    ) -> PartitionLog:
        at, is_known = place.directory.checkpointed(name), place.topic_id == topic_id
        if name in self._unread:  # since it was closed half way, in this process
            at = replace(at, clean=False)
        return open_partition_log(
            place.path, *name, topic_id, how, at, self.flush_times, is_known=is_known,
            files=place.files, go_on=go_on, points_fell=self.checkpointing.points_fell,
        )  # fmt: skip

    def _open(
        self,
        name: TopicPartition,
        topic_id: UUID,
        settings: Mapping[str, Any],
        new: bool,
        only: DataDirectory | None,
    ) -> HeldLog:
        made: Path | None = None
        try:
            recovered = self.recoveries.claim(name, topic_id, new=new)
            if recovered is not None:
                recovered.log.configure(**settings)
                return recovered
            place = self._place(name, topic_id, new, only)
            made = None if place.topic_id == topic_id else place.path
            log = self._open_at(place, name, topic_id, settings)
        except (OSError, CheckpointError, KafkaError) as error:
            self.trouble.look_at_cause(error, self.usable)
            if made is not None:
                self.removals.unmake(made)
            elif not self.clean:
                with self._lock:
                    self._unread.add(name)
            if isinstance(error, KafkaError):
                raise
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} cannot be opened: {error}"
            ) from error
        return HeldLog(log, place.directory)

    def _place(
        self, name: TopicPartition, topic_id: UUID, new: bool, only: DataDirectory | None
    ) -> Place:
        """Where the log is; or where it begins, when what is in its place was set aside."""
        places = placement.places_of(self._usable(only), name)
        gone = [*self._absence.were, *map(str, self.failed_directories())]
        for place in places:
            if place.topic_id == topic_id:
                return place
        for place in places:
            if placement.may_be(place.topic_id, topic_id) and not new and not gone:
                logger.warning("%s is given the topic id that the metadata store has", place.path)
                write_partition_metadata(place.path / PARTITION_METADATA_FILE, topic_id)
                return place._replace(topic_id=topic_id)
        lost = [each.lost[name] for each in self._directories if name in each.lost]
        if {None, topic_id} & {*lost} or (gone and not (new and self.usable)):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {name} is not here, and a data directory is missing or has failed: "
                f"{', '.join(gone)}",
            )
        for directory, path, *_ in places:
            self.set_aside(directory, name, path)
        directory = only or self.emptiest(name, self.usable, {})
        self._begin_at_zero(directory, name)
        return Place(directory, directory.path / str(name), None)

    def emptiest(
        self,
        name: TopicPartition,
        among: Sequence[DataDirectory],
        pending: Mapping[DataDirectory, int],
    ) -> DataDirectory:
        """Where a log is to begin. `pending`: how many begin there that are not open yet."""
        unclaimed = Counter(self.recoveries.unclaimed())
        unclaimed.update(pending)
        preferred = self.moves.preferred(name)
        return preferred or placement.emptiest(among, self._all_held(), unclaimed)

    def set_aside(self, directory: DataDirectory, name: TopicPartition, path: Path) -> None:
        """It is no replica any more: kept under another name, never appended to."""
        target = path.with_name(f"{path.name[:200]}.{uuid4().hex}{STRAY_SUFFIX}")
        file_operations.rename(path, target)
        self.names_changed(directory, name)
        directory.names.discard(name)
        logger.warning("%s is no replica any more; it is now %s", path, target.name)

    def _begin_at_zero(self, directory: DataDirectory, name: TopicPartition) -> None:
        """A new log: what a deleted one of the same name left in the checkpoints is not its own."""
        self.names_changed(directory, name)
        directory.names.add(name)
        for file in CHECKPOINT_FILES:
            with directory.checkpoint_locks[file]:
                if directory.has_line(file, name):
                    self.checkpointing.write_locked(file, directory)

    def names_changed(self, directory: DataDirectory, name: TopicPartition) -> None:
        """A log came or went: nothing that was said of it holds, and the names are to last."""
        with self._lock:
            directory.forget(name)
            self._unsynced.add(directory)

    def make_names_last(self, only: DataDirectory | None = None) -> None:
        """Directories that were made and renamed since the last time survive a power cut then."""
        with self._lock:
            unsynced = {each for each in self._unsynced if only in (None, each)}
            self._unsynced -= unsynced
        for directory in unsynced:
            try:
                if not directory.failed:
                    file_operations.sync_directory(directory.path)
            except OSError:
                self.trouble.look_at(directory)
                if not directory.failed:
                    with self._lock:
                        self._unsynced |= unsynced
                    raise

    def close(self, log: PartitionLog) -> None:
        """Closes one log; its files stay, and so does what is to be said of it. One that cannot be
        brought to the disk is closed all the same: no mark may cover it."""
        with self._lock:
            held = self._forget_locked(log)
            if held is not None:
                lines = {file: line_of(file, log, self.listener) for file in CHECKPOINT_FILES}
                held.directory.keep(log.name, lines)
        try:
            log.close()
        except OSError as error:
            logger.error("%s was not closed cleanly: %s", log.name, error)
            log.abandon()
            with self._lock:
                self._unread.add(log.name)

    def delete(self, log: PartitionLog) -> None:
        """Ends one log; its files go later, so that their readers can finish. Where that fails the
        log is closed all the same, and `delete_topic_directories` finds it."""
        with self._lock:
            held = self._forget_locked(log)
        try:
            self.removals.schedule(log.delete())
            if held is not None:
                held.directory.names.discard(log.name)
        except OSError as error:
            if held is not None and held.directory.failed:
                return  # it is set aside when its disk is back
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {log.name} cannot be deleted: {error}"
            ) from error
        finally:
            if held is not None:
                self.names_changed(held.directory, log.name)

    def delete_topic_directories(
        self, deleted: Mapping[UUID, str], only: DataDirectory | None = None
    ) -> None:
        """As `leftovers.delete_of_topics`, in one directory or all."""
        leftovers.delete_of_topics(self, self._usable(only), deleted)

    def set_aside_strays(
        self, is_here: Callable[[TopicPartition, UUID], bool], only: DataDirectory | None = None
    ) -> None:
        """As `leftovers.set_aside_strays`, in one directory or all."""
        leftovers.set_aside_strays(self, self._usable(only), is_here)

    def is_free(self, directory: DataDirectory, name: TopicPartition) -> bool:
        """Whether the log is not in use; one that was only recovered is closed as it was found."""
        if self.held([name]):
            return False
        with self._lock:
            self._unread |= set() if directory.clean else {name}  # should it keep its name
        if not self.recoveries.free(directory, name):
            raise OSError(errno.EBUSY, "it is being read still", str(directory.path / str(name)))
        return True

    def _forget_locked(self, log: PartitionLog) -> HeldLog | None:
        held = self._logs.get(log.name)
        if held is None or held.log is not log:
            return None
        return self._logs.pop(log.name)

    @contextmanager
    def moving(self, held: HeldLog, directory: DataDirectory) -> Iterator[Callable[[], None]]:
        """The checkpoints there have its lines as well; a deletion of records waits until it is
        known where the log is. Yields a function that says that it is there."""

        def moved() -> None:
            directory.names.add(log.name)
            with self._lock:
                held.directory.names.discard(log.name)
                held.directory = directory
                if directory.failed:  # just now: the log was not among those that are there
                    log.go_offline()

        both = sorted((held.directory, directory), key=lambda each: str(each.path))
        log = held.log
        with both[0].checkpoint_locks[LOG_START_FILE], both[1].checkpoint_locks[LOG_START_FILE]:
            lines = {file: line_of(file, log, self.listener) for file in CHECKPOINT_FILES}
            with self._lock:
                directory.keep(log.name, lines)
            try:
                self.checkpointing.write_locked(LOG_START_FILE, directory)
                for file in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE):
                    self.checkpointing.write(file, directory)
                yield moved
            finally:
                with self._lock:
                    directory.forget(log.name)
        if directory.failed and held.directory is directory:
            self.listener.went_offline(log)

    # --- In the background ------------------------------------------------------------------------

    def checkpoint(self) -> Iterator[None]:
        """One round of the background work, in steps. Runs on the scheduler's thread."""
        held = self._all_held()
        for looked_at, it in enumerate(held, start=1):
            if it.directory.failed:
                continue
            if it.log_failed_writes():
                self.trouble.look_at(it.directory)
            self._note_lost(it)
            worked = self._trim(it.log)
            worked |= self._flush(it, it.log.flush_rolled)
            if worked or looked_at % LOGS_LOOKED_AT_ONCE == 0:
                yield
        yield from self._write_everywhere(HIGH_WATERMARK_FILE, LOG_START_FILE)
        yield from self._producer_expiry.sweep([it.log for it in held])

    def checkpoint_recovery_points(self) -> Iterator[None]:
        """Puts the recovery points where a later start finds them: log.flush.offset.checkpoint."""
        return self._write_everywhere(RECOVERY_POINT_FILE)

    def _write_everywhere(self, *files: str) -> Iterator[None]:
        for directory in self.usable:
            try:
                for file in files:
                    self.checkpointing.write(file, directory)
            except OSError as error:
                logger.error("%s: checkpoints cannot be written: %s", directory.path, error)
                self.trouble.look_at(directory)
            yield

    def flush_old(self) -> Iterator[None]:
        """Brings logs to the disk that wait for it longer than `flush.ms`. A failure is logged."""
        now_ms = self._clock.monotonic_ms()
        held = self._all_held()
        for looked_at, it in enumerate(held, start=1):
            log = it.log
            due = (
                not it.directory.failed
                and log.recovery_point < log.log_end_offset
                and (now_ms - log.flushed_ms >= log.flush_ms)
            )
            if due:
                self._flush(it, log.flush)
            if due or looked_at % LOGS_LOOKED_AT_ONCE == 0:
                yield

    def _flush(self, it: HeldLog, flush: Callable[[], int]) -> bool:
        """Whether there was anything to flush, by the number that `flush` answers."""
        try:
            return it.log.online and bool(flush())
        except OSError as error:
            logger.error("%s cannot be flushed: %s", it.log.name, error)
            self._note_lost(it)
            return False

    def _note_lost(self, it: HeldLog) -> None:
        """Of a log that went offline, and was not closed meanwhile."""
        if not it.log.online and self.held([it.log.name]) == [it]:
            if it.log.may_open_again:
                self.wanting_room.note_offline(it.log.name, it.directory)
            else:
                it.directory.distrust()
            self.trouble.look_at(it.directory)
            self.listener.went_offline(it.log)

    def _fail(self, directory: DataDirectory, error: OSError) -> list[PartitionLog]:
        with self._lock:
            found = self.recoveries.abandon(directory)
            held = {name: it.log for name, it in self._logs.items() if it.directory is directory}
            here = {**found.logs, **held}
            ids = {name: log.topic_id for name, log in here.items()}
            directory.fail(error, {**dict.fromkeys(found.unread), **ids})
            self._unread |= found.unread
        return list(here.values())

    @property
    def usable(self) -> list[DataDirectory]:
        """Those that are here and have not failed. Any thread."""
        return [directory for directory in self._directories if not directory.failed]

    def _usable(self, only: DataDirectory | None) -> list[DataDirectory]:
        return [each for each in self.usable if only in (None, each)]

    def failed_directories(self) -> list[Path]:
        """Those that have served, and do no more. Any thread."""
        return [directory.path for directory in self._directories if directory.failed]

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
            self.removals.schedule(path, log.file_delete_delay_ms)
        return bool(renamed)

    def _all_held(self) -> list[HeldLog]:
        with self._lock:
            return list(self._logs.values())

    def open_logs(self) -> list[PartitionLog]:
        """Those that are open now."""
        return [it.log for it in self._all_held()]

    def held(self, names: Iterable[TopicPartition]) -> list[HeldLog]:
        """Of these logs those that are open."""
        with self._lock:
            return [it for name in names if (it := self._logs.get(name)) is not None]

    def _lines(self, file: str, directory: DataDirectory) -> dict[TopicPartition, int]:
        with self._lock:
            kept = directory.kept(file)
            logs = [it.log for it in self._logs.values() if it.directory is directory]
        return lines_of(file, kept, logs, self.listener)

    def remove_deleted(self) -> Iterator[None]:
        """Removes what was deleted and has waited for `file.delete.delay.ms`, file by file."""
        return self.removals.remove_due()

    # --- Numbers ----------------------------------------------------------------------------------

    def use_of_directories(self, wanted: Set[TopicPartition] | None) -> list[DirectoryUse]:
        """Every data directory with the logs in it, all or those wanted. Any thread."""
        held = self._all_held()
        return use_of_all(self._paths, self.usable, held, wanted, self.moves.futures())

    def statistics(self) -> dict[str, int]:
        """Figures for metrics and the admin page."""
        logs = self.open_logs()
        return {
            "directories": len(self._directories),
            "logs": len(logs),
            "bytes": sum(log.size_bytes for log in logs),
            "directories_to_remove": len(self.removals),
        }
