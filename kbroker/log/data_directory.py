"""One data directory: its lock, its checkpoints, the names in it, what waits to be removed.

`.lock` is held with flock(2) for as long as the broker runs; the kernel lets go of it with the
process, so a crash leaves no stale lock. `.kafka_cleanshutdown` is written as the last step of a
clean stop and removed as the first of a start: where it is missing, a crash came in between.
Directories `<topic>-<partition>` are logs, `*-delete` are logs that nobody may open again,
`*-stray` are kept for a person to look at.

Used by the manager; `log_starts_lock` is before the manager's own. Checkpoints that cannot be read
count as empty: what they say can be found again in the logs, more slowly, but for starts that lie
inside a segment.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from kbroker.errors import DataDirectoryError
from kbroker.log.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    read_offsets,
    replace_file,
    write_offsets,
)
from kbroker.log.loader import Checkpointed
from kbroker.log.partition_log import DELETED_SUFFIX
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

Item = TypeVar("Item")


class DataDirectory:
    """One entry of `log.dirs`. `open` before anything else, `close` as the last."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.clean = False
        self._lock: int | None = None
        self._read: dict[str, dict[TopicPartition, int]] = {}
        # What the files hold, and whether that is on the disk and not only in the page cache.
        self._written: dict[str, tuple[dict[TopicPartition, int], bool]] = {}
        # Held while the starts are read from their logs and written: the newest is written last.
        self.log_starts_lock: Final = threading.Lock()

    # --- Life -------------------------------------------------------------------------------------

    def open(self) -> None:
        """Takes the directory for this process; DataDirectoryError says why it cannot be had."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise DataDirectoryError(
                f"data directory {self.path} cannot be used: {error.strerror}",
                "make it writable for this user, or give another one with --data-dir",
            ) from error
        marker = self.path / CLEAN_SHUTDOWN_FILE
        self.clean = marker.exists()
        marker.unlink(missing_ok=True)
        for name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE):
            self._read[name] = self._read_checkpoint(name)
        self._written[LOG_START_FILE] = (dict(self._read[LOG_START_FILE]), True)

    def close(self, *, clean: bool) -> None:
        """Lets go of the directory. `clean`: every log in it was closed and is on the disk."""
        if self._lock is None:
            return
        if clean:
            replace_file(
                self.path / CLEAN_SHUTDOWN_FILE, json.dumps({"version": 0, "brokerEpoch": -1})
            )
        os.close(self._lock)
        self._lock = None

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
        # For the message above, of whoever comes later.
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._lock = handle

    # --- Names ------------------------------------------------------------------------------------

    def logs(self) -> dict[TopicPartition, Path]:
        """Directories of logs by partition."""
        found: dict[TopicPartition, Path] = {}
        for entry in os.scandir(self.path):
            name = partition_of(entry.name)
            if name is not None and entry.is_dir(follow_symlinks=False):
                found[name] = Path(entry.path)
        return found

    def deleted(self) -> list[Path]:
        """Directories that a deletion has renamed and nobody has removed yet."""
        return [
            Path(entry.path)
            for entry in os.scandir(self.path)
            if entry.name.endswith(DELETED_SUFFIX) and entry.is_dir(follow_symlinks=False)
        ]

    # --- Checkpoints ------------------------------------------------------------------------------

    def checkpointed(self, name: TopicPartition) -> Checkpointed:
        """What the checkpoints said of a log when the directory was opened."""
        return Checkpointed(
            clean=self.clean,
            recovery_point=self._read[RECOVERY_POINT_FILE].get(name, 0),
            high_watermark=self._read[HIGH_WATERMARK_FILE].get(name, 0),
            log_start_offset=self._read[LOG_START_FILE].get(name, 0),
        )

    def forget(self, name: TopicPartition) -> None:
        """The log is gone: one of the same name begins anew."""
        for offsets in self._read.values():
            offsets.pop(name, None)

    def write_checkpoint(
        self, file: str, offsets: Mapping[TopicPartition, int], *, sync: bool
    ) -> None:
        """Writes the offsets of all logs here, if one has changed since the last time."""
        current = dict(offsets)
        written, synced = self._written.get(file, (None, False))
        if written == current and (synced or not sync):
            return
        write_offsets(self.path / file, current, sync=sync)
        self._written[file] = (current, sync)

    def holds_start_of(self, name: TopicPartition) -> bool:
        """Whether the file of the starts has a line for this partition."""
        return name in self._written[LOG_START_FILE][0]

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.path / name)
        except CheckpointError as error:
            logger.warning("%s; starting without it", error)
            return {}


def partition_of(name: str) -> TopicPartition | None:
    """The partition that a directory name stands for: everything before the last dash, and it."""
    topic, dash, index = name.rpartition("-")
    if not (topic and dash and index.isascii() and index.isdecimal()):
        return None
    if str(int(index)) != index or len(index) > 10:
        return None
    return TopicPartition(topic, int(index))


def remove_steps(path: Path) -> Iterator[None]:
    """Removes a file, or a directory file by file: a step each, since one may free gigabytes."""
    try:
        if not path.is_dir():
            path.unlink(missing_ok=True)
            yield
            return
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)
            yield
        path.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("cannot remove %s: %s", path, error)


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
