"""One log's way into another data directory of its broker, while it serves (KIP-113).

`<topic>-<partition>.<unique>-future`, which no other code opens, becomes a copy of it: full
segments once, the active one as far as it goes, again until little is left. Then appends wait: the
rest is copied, all of it is on the disk, and the copy takes the log's name and its place.
Leadership, waiting requests and lent slices stay as they are; readers go on in the old files.

A crash leaves either the log and a copy that is in no list, or the log twice. The copy has a file
that names its source (`MOVED_FILE`), written before anything else, and it has the log's name only
when it is whole: so of two the copy is the newer one, and a start goes on with it (`settle_twice`).
The old directory goes when the copy's name is on the disk, and only then the file.

One thread; the lock of the log's files is held for the last step alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from kbroker.errors import InvariantError
from kbroker.log.engine import file_operations, producer_snapshots
from kbroker.log.engine.checkpoints import PARTITION_METADATA_FILE, write_partition_metadata
from kbroker.log.engine.partition_log import PartitionLog, deleted_path
from kbroker.log.looking._describe import segment_figures
from kbroker.log.opening.data_directory import DataDirectory, partition_of
from kbroker.log.opening.placement import may_be, topic_id_of
from kbroker.log.opening.set_aside import CUT_SUFFIX
from kbroker.log.upkeep._moving import SegmentCopy, begin_swap, end_swap, put_in_place
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

FUTURE_SUFFIX: Final = "-future"
FUTURE_CHARS: Final = len(".") + 32 + len(FUTURE_SUFFIX)  # of a `future_name`, after the log's
MOVED_FILE: Final = "moved-from"
# The most bytes that appends wait for, as far as copying goes.
SWAP_BYTES_MAX: Final = 4 << 20
PIECE_BYTES: Final = 256 << 10
_SEGMENT_FILES: Final = ("log", "index", "timeindex", "txnindex")


def future_name(name: TopicPartition) -> str:
    """As Apache Kafka's; none is the same twice."""
    return f"{name}.{uuid4().hex}{FUTURE_SUFFIX}"


def partition_of_future(directory_name: str) -> TopicPartition | None:
    """Whose future a directory of that name was to be."""
    front, dot, _ = directory_name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    return partition_of(front) if dot and directory_name.endswith(FUTURE_SUFFIX) else None


class LogMove:
    """See the head of this file. OSError, MemoryError: it stays where it is, and `give_up` leaves
    only files that are never opened."""

    def __init__(self, log: PartitionLog, directory: Path) -> None:
        """Into the data directory of that path."""
        self.log: Final = log
        self.future: Final = directory / future_name(log.name)
        self.final: Final = directory / str(log.name)
        self.left_over: list[Path] = []  # of it where it was, to be removed
        self._copies: dict[int, SegmentCopy] = {}

    def begin(self) -> None:
        with self.log.changing():  # what is being cleaned or restored is there before it is copied
            self.log.being_moved = True
        # Of an earlier move: this log is not whose copy it was any more.
        old = source_of(self.log.path)
        if old is not None and file_operations.is_there(old) and _is_copy_of(self.log.path, old):
            self.left_over.append(_leave(old, self.log.path))
        forget_source(self.log.path)
        file_operations.make_directory(self.future)
        source = os.fsencode(self.log.path)
        file_operations.write_file(self.future / MOVED_FILE, source, sync=True)
        write_partition_metadata(self.future / PARTITION_METADATA_FILE, self.log.topic_id)
        file_operations.sync_file(self.future / PARTITION_METADATA_FILE)
        self._copy_kept_files()

    def give_up(self) -> None:
        """The copy stays, for a start to know what was asked."""
        self.log.being_moved = False
        self._copies.clear()

    def call_off(self) -> Path | None:
        """No start goes on with it; what is to be removed."""
        self.give_up()
        target = deleted_path(self.future)
        try:
            file_operations.rename(self.future, target)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("%s is left over: %s", self.future, error)
            return self.future
        return target

    # --- Copying ----------------------------------------------------------------------------------

    def copy(self) -> Iterator[int]:
        """All that there is when it begins, and more where more comes; the bytes of each piece."""
        self._forget_what_is_gone()
        figures = segment_figures(self.log)
        for figure in figures:
            copy = self._copy_of(figure.base_offset)
            if copy is None:
                continue
            try:
                yield from self._copy_one(copy, is_active=figure is figures[-1])
            except OSError:
                if copy.still_there:
                    raise  # else it was cut or trimmed, and its files are gone

    def _copy_one(self, copy: SegmentCopy, *, is_active: bool) -> Iterator[int]:
        while left := copy.left_bytes:
            yield copy.copy()
            if is_active and left <= PIECE_BYTES:
                break  # its end moves on: what came since is the next round's
        if is_active:
            copy.sync()  # or the last step waits for it
        elif not copy.finished:
            copy.finish()

    def _copy_of(self, base_offset: int) -> SegmentCopy | None:
        """None: it was trimmed."""
        if base_offset not in self._copies:
            try:
                copy = SegmentCopy(self.log, base_offset, str(self.future))
            except KeyError:
                return None
            self._copies[base_offset] = copy
        return self._copies[base_offset]

    def _forget_what_is_gone(self) -> None:
        """Copies of segments that were cut, trimmed or cleaned meanwhile."""
        for base_offset, copy in list(self._copies.items()):
            if not copy.still_there:
                del self._copies[base_offset]
                for kind in _SEGMENT_FILES:
                    file_operations.unlink(self.future / f"{base_offset:020d}.{kind}")

    @property
    def left_bytes(self) -> int:
        """That are not copied."""
        return sum(
            max(0, figure.size_bytes - self._copied_bytes(figure.base_offset))
            for figure in segment_figures(self.log)
        )

    def _copied_bytes(self, base_offset: int) -> int:
        copy = self._copies.get(base_offset)
        return 0 if copy is None else copy.copied_bytes

    @property
    def copied_bytes(self) -> int:
        return sum(copy.copied_bytes for copy in list(self._copies.values()))

    @property
    def copied_to(self) -> int:
        """The offset up to which segments are whole; for people."""
        finished = [it.base_offset for it in list(self._copies.values()) if not it.finished]
        return min(finished, default=self.log.log_start_offset)

    # --- Taking its place -------------------------------------------------------------------------

    def swap(self, checkpoints: Callable[[], AbstractContextManager[Callable[[], None]]]) -> bool:
        """The copy takes the log's place. False: too much has come meanwhile, and is to be copied.

        Within `checkpoints` what is said of the log in its present directory is said in the other
        one too, and what that yields is called when it is there.
        """
        log, source = self.log, self.log.path
        with log.changing():
            if not log.online:
                raise InvariantError(f"{log.name} is closed")
            self._forget_what_is_gone()
            self._copy_snapshots()
            with checkpoints() as moved:
                self._catch_up()
                begin_swap(log)
                try:
                    if self.left_bytes > SWAP_BYTES_MAX:
                        return False
                    self._take_place()
                    moved()
                finally:
                    end_swap(log)
            try:
                self.left_over.append(_leave(source, self.final))
            except OSError as error:
                logger.warning("%s is left over, and goes at the next start: %s", source, error)
        log.being_moved = False
        return True

    def _catch_up(self) -> None:
        """With the records that have come while checkpoints were written: a busy log is never done
        else."""
        for figure in segment_figures(self.log):
            copy = self._copy_of(figure.base_offset)
            left = 0 if copy is None else copy.left_bytes
            while copy is not None and left > 0:
                left -= copy.copy()

    def _copy_snapshots(self) -> None:
        """Of producers, as they are now: an older one of the same offset may be of records that
        were cut."""
        producer_snapshots.remove_all(self.future)
        for _, path in producer_snapshots.snapshot_files(self.log.path):
            self._copy_file(path)

    def _copy_kept_files(self) -> None:
        """What a recovery has kept for a person."""
        for entry in file_operations.list_directory(self.log.path):
            if entry.name.endswith(CUT_SUFFIX) and entry.is_file(follow_symlinks=False):
                self._copy_file(Path(entry.path))

    def _copy_file(self, path: Path) -> None:
        file_operations.copy_part(path, 0, path.stat().st_size, self.future / path.name)

    def _take_place(self) -> None:
        """Nothing is appended, cut or rolled meanwhile."""
        log = self.log
        for figure in segment_figures(log):
            copy = self._copy_of(figure.base_offset)
            if copy is None:
                raise InvariantError(f"{log.name} lost a segment while it was moved")
            while copy.left_bytes:
                copy.copy()
            if not copy.finished:
                copy.finish()
        log.epochs.copy_to(self.future)
        file_operations.sync_directory(self.future)
        copies = [copy for _, copy in sorted(self._copies.items())]
        for copy in copies:
            copy.take_name(str(self.final))
        file_operations.rename(self.future, self.final)
        try:
            file_operations.sync_directory(self.final.parent)
            put_in_place(log, copies, str(self.final))
        except BaseException:
            self._take_name_back()
            raise
        log.moved_to(self.final)
        self._copies.clear()

    def _take_name_back(self) -> None:
        """Or nothing is appended any more: of two the copy would be taken for the newer one."""
        try:
            file_operations.rename(self.final, self.future)
            file_operations.sync_directory(self.final.parent)
        except OSError:
            self.log.go_offline()
            raise


def _leave(source: Path, path: Path) -> Path:
    """The log is at `path`: the rest of it in the old place gets a name that is never opened."""
    target = deleted_path(source)
    file_operations.rename(source, target)
    file_operations.sync_directory(source.parent)
    forget_source(path)
    return target


def source_of(path: Path) -> Path | None:
    """The log of which the one there is a copy, after a move that is not over."""
    try:
        return Path(os.fsdecode(file_operations.read_file(path / MOVED_FILE)))
    except FileNotFoundError:
        return None


def forget_source(path: Path) -> None:
    """The log there is no copy any more, and that lasts."""
    if file_operations.is_there(path / MOVED_FILE):
        file_operations.unlink(path / MOVED_FILE)
        file_operations.sync_directory(path)


def settle_twice(directories: Sequence[DataDirectory]) -> None:
    """After a crash: of a log that is in two directories, with a whole copy in one of them, the
    other one has had its place taken, and becomes a deleted one. OSError."""
    found = {directory.path: directory.logs() for directory in directories}
    for logs in found.values():
        for name, path in logs.items():
            for others in found.values():
                other = others.get(name)
                if other is not None and other != path and _is_copy_of(path, other):
                    logger.warning("%s was moved to %s; it is removed", other, path)
                    file_operations.rename(other, deleted_path(other))
                    file_operations.sync_directory(other.parent)
                    del others[name]
                    forget_source(path)


class Unfinished(NamedTuple):
    """A move that a stop or a crash has ended: the log, its target, its remains."""

    name: TopicPartition
    directory: DataDirectory
    path: Path


def unfinished(directories: Sequence[DataDirectory]) -> list[Unfinished]:
    """Those whose log is where it was; of another a copy may be all that there is."""
    found = [
        Unfinished(name, directory, Path(entry.path))
        for directory in directories
        for entry in file_operations.list_directory(directory.path)
        if (name := partition_of_future(entry.name)) is not None
    ]
    here = {name for directory in directories for name in directory.logs()} if found else set()
    for it in found:
        if it.name not in here:
            logger.warning("%s is a copy of a log that is not here; it is left alone", it.path)
    return [it for it in found if it.name in here]


def _is_copy_of(path: Path, other: Path) -> bool:
    topic_id = topic_id_of(path)
    if source_of(path) != other or topic_id is None:
        return False
    return may_be(topic_id_of(other), topic_id)  # the other's was never brought to the disk
