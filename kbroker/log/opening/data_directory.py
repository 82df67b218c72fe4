"""One data directory: its lock, its checkpoints, the names in it, the files to be removed.

`.lock` is held with flock(2) for as long as the broker runs; the kernel lets go of it with the
process, so a crash leaves no stale lock. `.kafka_cleanshutdown` is written as the last step of a
clean stop and removed as the first of a start: where it is missing, a crash came in between.
`.boot_id` names the boot of the machine in which the directory was used, the lock's device and
inode (`lock_name`), and the mount of its file system (`mounts.py`): a crash in the same boot and
mount was the end of a process alone, which loses no page. After any other crash the logs may have
lost acknowledged records (`lossy`), and so they may in a copy, which has another lock and may be of
any time before, and in a directory that is not the one that the broker knows. A disk that became
read-only is in another mount when it is used again, with the file as it was. The file is written
only once the loss has been reported to the cluster (`remember_boot`), so that a start that ends
before is followed by another lossy one. Directories `<topic>-<partition>` are logs, `*-delete` are
logs that are never opened again, `*-stray` are kept for an operator to look at.

The checkpoints' lines of a log that is not open are **kept**: they are written again with every
checkpoint, so that a log that cannot be opened today has its start tomorrow. Opening a log,
beginning it again or deleting it drops its lines (`forget`); closing one leaves it with new lines
(`keep`). A start that goes no further gives the directory back as it was found, its mark too.

Used by the manager, under its lock where lines are kept and forgotten; the lock of a checkpoint is
before the manager's own. Of a checkpoint that is damaged, every line that can be read counts. The
others can be found again in the logs, more slowly, but for a start that lies inside a segment: a
log that may have had such a line is not opened, since its deleted records would be readable again.
If a damaged line names no log here, that is every log without a line. It stays so until a person
writes the start into the file. Apache Kafka fails the whole directory for any damaged line. One
that cannot be read at all, or is no file, refuses the start: nothing has been
touched then.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from kbroker.errors import DataDirectoryError
from kbroker.log.engine import file_operations
from kbroker.log.engine.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    UNKNOWN_START,
    OffsetLines,
    read_offset_lines,
    write_offsets,
)
from kbroker.log.engine.partition_log import DELETED_SUFFIX
from kbroker.log.opening.loader import Checkpointed
from kbroker.log.opening.mounts import mount_of
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
BOOT_FILE: Final = ".boot_id"
PROBE_FILE: Final = ".probe"
UNKNOWN_BOOT: Final = ""
CHECKPOINT_FILES: Final = (
    RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_FILE,
)  # fmt: skip
DAMAGED_NAMED_MAX: Final = 20  # lines and logs, in a line of the broker's log
_MARK: Final = json.dumps({"version": 0, "brokerEpoch": -1}).encode()

Item = TypeVar("Item")


class DataDirectory:
    """One entry of `log.dirs`. `open` before anything else, `close` or `give_back` as the last."""

    def __init__(self, path: Path, boot_id: str = UNKNOWN_BOOT) -> None:
        """`boot_id`: of the machine; one that is not known is never the same."""
        self.path: Final = path
        self.failed = False
        # Since it has failed: the logs that are here, or may be, and were not open.
        self.lost: Mapping[TopicPartition, UUID | None] = {}
        # Partitions whose logs are here, as far as it was listed or they begin here; a broker with
        # one directory need not know.
        self.names: Final[set[TopicPartition]] = set()
        self.clean = False
        self.lossy = False
        self._boot_id: Final = boot_id
        self._unreported = False  # lossy, and the cluster does not know yet
        self._distrusted = False  # since a sync failed
        self._boot_forgotten = False
        self._lock: int | None = None
        self._mark = b""  # as it was found
        # The checkpoints' lines of logs that are not open.
        self._kept: dict[str, dict[TopicPartition, int]] = {file: {} for file in CHECKPOINT_FILES}
        # The content of the files.
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._damaged: set[str] = set()  # files that hold something else as well
        # Of each checkpoint: held while its offsets are read from the logs and written, so that the
        # newest are written last.
        self.checkpoint_locks: Final = {file: threading.Lock() for file in CHECKPOINT_FILES}

    @property
    def taken(self) -> bool:
        """Whether it is this process's, between `open` and `close`."""
        return self._lock is not None

    @property
    def lock_name(self) -> str | None:
        """The boot of the machine, device and inode of the file that this process has locked. While
        the process lives no other one can hold a lock of the same name; a copy of the directory has
        another inode. None: no lock is held, or the boot is not known."""
        if self._lock is None or self._boot_id == UNKNOWN_BOOT:
            return None
        file = os.fstat(self._lock)
        return f"{self._boot_id}:{file.st_dev}:{file.st_ino}"

    def _use(self) -> str | None:
        """The content of `.boot_id`: the boot, the lock and, where the kernel says it, the mount in
        which this process uses the directory."""
        if self._lock is None or (lock_name := self.lock_name) is None:
            return None
        mount = mount_of(os.fstat(self._lock).st_dev)
        return f"{lock_name}:{mount}" if mount else lock_name

    # --- Life -------------------------------------------------------------------------------------

    def open(self, *, foreign: bool = False) -> None:
        """Takes the directory for this process; DataDirectoryError says why it cannot be had.

        `foreign`: the broker has never used it, whatever is in it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise DataDirectoryError(
                f"data directory {self.path} cannot be used: {error.strerror}",
                "make it writable for this user, or give another one with --data-dir",
            ) from error
        try:
            for file in CHECKPOINT_FILES:
                self._kept[file] = self._read_checkpoint(file)
                self._written[file] = dict(self._kept[file])
            self._take_mark(foreign)  # as the last: what is refused above has touched nothing
        except OSError as error:
            self._let_go()
            raise DataDirectoryError(
                f"{error.filename} cannot be read: {error.strerror}",
                "mend the disk, or move away what is there in the place of the broker's file",
            ) from error

    def close(self, *, clean: bool) -> None:
        """Lets go of the directory. `clean`: every log in it was closed and is on the disk. An
        earlier loss that was not reported yet is not covered by a mark."""
        if self._lock is None:
            return
        try:
            if clean and not self._unreported:
                file_operations.replace_file(self.path / CLEAN_SHUTDOWN_FILE, _MARK)
        finally:
            self._let_go()

    def give_back(self) -> None:
        """Lets go of the directory as it was found: the mark is there if it was there, unless it
        has failed since."""
        if self._lock is None:
            return
        try:
            if self.clean and not self._unreported and not self.failed:
                file_operations.replace_file(self.path / CLEAN_SHUTDOWN_FILE, self._mark)
        except OSError as error:
            logger.error("%s: the clean-shutdown mark is not put back: %s", self.path, error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_mark(self, foreign: bool) -> None:
        """Removes the mark, and that lasts: what is written from now on a crash may tear."""
        marker = self.path / CLEAN_SHUTDOWN_FILE
        clean = True
        try:
            self._mark = file_operations.read_file(marker)
        except FileNotFoundError:
            clean = False
        self._look_at_boot(clean, foreign)  # with the mark in place, should this be cut here
        if clean:
            file_operations.unlink(marker)
            file_operations.sync_directory(self.path)
        self.clean = clean

    # --- Boots of the machine ---------------------------------------------------------------------

    def _look_at_boot(self, clean: bool, foreign: bool) -> None:
        """Whether logs here may have lost something, which stays so for the next start."""
        boot_file = self.path / BOOT_FILE
        try:
            last = file_operations.read_file(boot_file).decode("ascii", "replace")
        except FileNotFoundError:
            last = UNKNOWN_BOOT
        use = self._use()
        # Builds up to 2026-11-28 wrote the boot alone, those up to 2026-12-01 no mount.
        same = use is not None and last in (use, self.lock_name, self._boot_id)
        if last.startswith(f"{self._boot_id}:") and not (same or clean):
            logger.warning(
                "%s is a copy, or its disk was mounted again, and the broker that used it did not"
                " stop in order: it may lack what was acknowledged", self.path,
            )  # fmt: skip
        unused = last == UNKNOWN_BOOT and not self.logs()
        self.lossy = self._unreported = foreign or not (clean or same or unused)
        if self.lossy and same:
            file_operations.unlink(boot_file)
        elif not self.lossy and last != use:
            self._write_boot()

    def remember_boot(self) -> None:
        """A loss here has been reported to the cluster: it is not reported again."""
        if self.lossy and not self._distrusted:
            self._write_boot()
        self._unreported = False

    def distrust(self) -> None:
        """A write was lost, and with it pages: the next start is lossy, in the same boot as well,
        unless this process stops in order. Where the file cannot be removed, the disk has to be
        mounted again before it takes a write, and that makes the next start lossy."""
        self._distrusted = True
        if self._boot_forgotten:
            return
        try:
            file_operations.unlink(self.path / BOOT_FILE)
            self._boot_forgotten = self.path.is_dir()  # else its disk is away, with the file
        except OSError as error:
            logger.error("%s: %s cannot be removed: %s", self.path, BOOT_FILE, error)

    def fails(self) -> OSError | None:
        """Why nothing can be written here; None: it can, or room or something of the process's own
        is wanting."""
        error = self._probe()
        return error if error is not None and error.errno in file_operations.DISK_FAILS else None

    def has_room(self) -> bool:
        """Whether a small file can be written here."""
        return self._probe() is None

    def _probe(self) -> OSError | None:
        probe = self.path / PROBE_FILE
        try:
            file_operations.write_file(probe, _MARK, sync=True)
        except OSError as error:
            return error
        finally:
            with contextlib.suppress(OSError):
                file_operations.unlink(probe)
        return None

    def fail(self, error: OSError, held: Mapping[TopicPartition, UUID | None]) -> None:
        """It stays so for this process: the content of its files is unknown before a start has read
        them. `held` are the logs that are open here, or were to be read, with their topics."""
        kept = {name: None for offsets in self._kept.values() for name in offsets}
        self.lost = {**kept, **held}
        self.failed = True
        logger.critical(
            "data directory %s has failed: %s; its partitions are offline until the disk is mended"
            " and the broker started again", self.path, error.strerror,
        )  # fmt: skip
        self.distrust()

    def _write_boot(self) -> None:
        """Not synced: what a power cut makes of it is not the next boot."""
        if (use := self._use()) is not None:
            file_operations.replace_file(self.path / BOOT_FILE, use.encode(), sync=False)

    def _take_lock(self) -> None:
        handle = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
            os.close(handle)
            raise DataDirectoryError(
                f"data directory {self.path} is in use by {f'pid {owner}' if owner else 'another'}",
                "stop that broker, or start with another --data-dir and --port 0",
            ) from error
        except OSError:
            os.close(handle)
            raise
        # For the message above, of a later start.
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._lock = handle

    # --- Names ------------------------------------------------------------------------------------

    def logs(self, topics: Container[str] | None = None) -> dict[TopicPartition, Path]:
        """Directories of logs by partition: of these topics, or all."""
        found: dict[TopicPartition, Path] = {}
        for entry in file_operations.list_directory(self.path):
            if topics is not None and entry.name.rpartition("-")[0] not in topics:
                continue  # there may be tens of thousands of others
            name = partition_of(entry.name)
            if name is not None and entry.is_dir(follow_symlinks=False):
                found[name] = Path(entry.path)
        self.names.update(found)
        return found

    def deleted(self) -> list[Path]:
        """Directories that a deletion has renamed and that are not removed yet."""
        return [
            Path(entry.path)
            for entry in file_operations.list_directory(self.path)
            if entry.name.endswith(DELETED_SUFFIX) and entry.is_dir(follow_symlinks=False)
        ]

    # --- Checkpoints ------------------------------------------------------------------------------

    def checkpointed(self, name: TopicPartition) -> Checkpointed:
        """What the checkpoints say of a log that is not open."""
        return Checkpointed(
            clean=self.clean,
            recovery_point=self._kept[RECOVERY_POINT_FILE].get(name, 0),
            high_watermark=self._kept[HIGH_WATERMARK_FILE].get(name, 0),
            log_start_offset=self._kept[LOG_START_FILE].get(name, 0),
            cleaned_to=self._kept[CLEANER_FILE].get(name, 0),
        )

    def kept(self, file: str) -> dict[TopicPartition, int]:
        """The lines of logs that are not open: a copy."""
        return dict(self._kept[file])

    def keep(self, name: TopicPartition, lines: Mapping[str, int]) -> None:
        """The log is closed, its files stay: what is to be said of it, by file."""
        for file, offset in lines.items():
            self._kept[file][name] = offset

    def forget(self, name: TopicPartition) -> None:
        """The log is open and speaks for itself, or it is gone."""
        for offsets in self._kept.values():
            offsets.pop(name, None)

    def write_checkpoint(self, file: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes the offsets of all logs here, if one has changed since the last time."""
        current = dict(offsets)
        if self._written.get(file) == current and file not in self._damaged:
            return
        write_offsets(self.path / file, current)
        self._written[file] = current
        self._damaged.discard(file)

    def update_checkpoint(self, file: str, offsets: Mapping[TopicPartition, int]) -> None:
        """The same for some logs; the lines of the others stay."""
        if any(self._written[file].get(name) != offset for name, offset in offsets.items()):
            self.write_checkpoint(file, {**self._written[file], **offsets})

    def has_line(self, file: str, name: TopicPartition) -> bool:
        """Whether the file on the disk has a line for this partition."""
        return name in self._written[file]

    def _read_checkpoint(self, file: str) -> dict[TopicPartition, int]:
        found = read_offset_lines(self.path / file)
        if found.damage:
            self._damaged.add(file)
            for number, what in found.damage[:DAMAGED_NAMED_MAX]:
                logger.warning(
                    "%s, line %d: %s; starting without it", self.path / file, number, what
                )
            if file == LOG_START_FILE:
                return {**found.offsets, **self._unknown_starts(found)}
        return found.offsets

    def _unknown_starts(self, found: OffsetLines) -> dict[TopicPartition, int]:
        here = self.logs().keys() - found.offsets.keys()
        every = found.nameless or not here.issuperset(found.named)
        unknown = sorted(here if every else found.named)
        if unknown:
            logger.warning(
                "%s: the start of these logs is not known, so they stay offline, or deleted records"
                " would be readable again: %s%s; stop the broker and write it into their lines",
                self.path / LOG_START_FILE,
                ", ".join(map(str, unknown[:DAMAGED_NAMED_MAX])),
                f" and {len(unknown) - DAMAGED_NAMED_MAX} more"
                if len(unknown) > DAMAGED_NAMED_MAX
                else "",
            )
        return dict.fromkeys(unknown, UNKNOWN_START)


def partition_of(name: str) -> TopicPartition | None:
    """The partition of a directory's name: everything before the last dash, and the number."""
    topic, dash, index = name.rpartition("-")
    if not (topic and dash and index.isascii() and index.isdecimal()):
        return None
    if str(int(index)) != index or len(index) > 10:
        return None
    return TopicPartition(topic, int(index))


def lock_names(directories: Iterable[DataDirectory]) -> list[str]:
    """What this process holds and no other one can; see `DataDirectory.lock_name`."""
    return [name for each in directories if (name := each.lock_name) is not None]


def in_threads(count: int, work: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Runs `work` over the items, on up to `count` threads; the first exception is raised."""
    if count <= 1 or len(items) <= 1:
        for item in items:
            work(item)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(count, len(items)), "kbroker-log") as pool:
        for _ in pool.map(work, items):
            pass
