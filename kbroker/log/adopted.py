"""Logs that another broker has written, Apache Kafka's say, taken into a data directory of ours.

    logs_of     the logs in a directory of that broker, which does not run
    check       whether one can be served here as it was there
    records_of  the records of one, as far as it can be read
    copied      the files of one, in a place beside where it is to be, opened as after a crash (so
                every batch is read and every index made again), with an end for each transaction
                that is open, and closed, on the disk
    placed      those copies under their names, with their lines in the checkpoints
    undone      none of it has been there

The other broker's directory is only read. A broken off adoption leaves files whose name no broker
opens, and which go with the next one.

Offline, on one thread; OSError, DataDirectoryError, and ValueError for a file that is not what it
should be.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from kbroker.config.key import INT_MAX
from kbroker.errors import DataDirectoryError, KafkaError
from kbroker.log.adopted_ends import Ended, Ends, end_of
from kbroker.log.engine import file_operations
from kbroker.log.engine._results import ProducerEntry
from kbroker.log.engine.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
    write_offsets,
    write_partition_metadata,
)
from kbroker.log.engine.leader_epochs import NO_EPOCH
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.engine.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from kbroker.log.engine.producer_snapshots import SnapshotError, decode, snapshot_files
from kbroker.log.engine.segment_files import CLEANED_SUFFIX, SWAP_SUFFIX
from kbroker.log.looking._tools import crc32c
from kbroker.log.looking.dump import (
    SegmentFile,
    base_offset_of,
    format_of,
)
from kbroker.log.looking.verify import verify
from kbroker.log.opening.data_directory import (
    CHECKPOINT_FILES,
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    DataDirectory,
)
from kbroker.log.opening.loader import UNKNOWN, Checkpointed, open_partition_log
from kbroker.log.opening.set_aside import CUT_SUFFIX
from kbroker.protocol.record_batch import (
    ATTRIBUTES_BEGIN,
    BATCH_HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    Record,
    decode_batches,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.types import TopicPartition

ADOPTING_SUFFIX: Final = ".adopting"
NO_PRODUCER: Final = -1
# After it there is room for one that begins here and one of the first election.
LEADER_EPOCH_MAX: Final = INT_MAX - 2
# Indexes are made again, and deleted files are not copied.
_COPIED: Final = (".log", SNAPSHOT_SUFFIX)


class ForeignLog(NamedTuple):
    """A log of the other broker, which its checkpoints know by these lines. `leader_epoch`: the
    newest that it has noted, -1: none."""

    name: TopicPartition
    path: Path
    topic_id: UUID
    lines: Mapping[str, int]
    leader_epoch: int
    clean: bool  # its broker was stopped in order

    @property
    def start_offset(self) -> int:
        """0 where it is that of the first segment."""
        return self.lines.get(LOG_START_FILE, 0)

    @property
    def recovery_point(self) -> int:
        return self.lines.get(RECOVERY_POINT_FILE, 0)

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in _files(self.path))


class Copied(NamedTuple):
    """The copy of one; `leader_epoch` -1: it has had no leader yet. `producer_id`: the highest that
    it knows, or -1."""

    name: TopicPartition
    path: Path
    lines: Mapping[str, int]
    start_offset: int
    end_offset: int
    leader_epoch: int
    producer_id: int
    size_bytes: int
    cut: tuple[Path, ...]  # what its crash has torn, kept under these names
    ended: tuple[Ended, ...]  # transactions that were open


# --- Of the other broker --------------------------------------------------------------------------


def logs_of(directory: Path, wanted: Callable[[str], bool]) -> dict[TopicPartition, ForeignLog]:
    """By name, of the topics that are `wanted`. DataDirectoryError for one that cannot be read."""
    clean = (directory / CLEAN_SHUTDOWN_FILE).exists()
    found: dict[TopicPartition, ForeignLog] = {}
    try:
        files = [file for file in CHECKPOINT_FILES if _begun(directory / file)]
        lines = {file: read_offsets(directory / file) for file in files}
        for name, path in DataDirectory(directory).logs().items():
            if not wanted(name.topic):
                continue
            topic_id = read_partition_metadata(path / PARTITION_METADATA_FILE)
            if topic_id is None:
                raise CheckpointError(f"{path} has no {PARTITION_METADATA_FILE}")
            own = {file: offsets[name] for file, offsets in lines.items() if name in offsets}
            noted = path / LEADER_EPOCH_FILE
            epochs = read_leader_epochs(noted) if _begun(noted) else []
            latest = epochs[-1][0] if epochs else NO_EPOCH
            found[name] = ForeignLog(name, path, topic_id, own, latest, clean)
    except (OSError, CheckpointError) as error:
        raise DataDirectoryError(
            f"{directory} cannot be adopted: {error}",
            "name a directory of log.dirs of a broker that was stopped in order",
        ) from error
    return found


def _begun(path: Path) -> bool:
    """Whether a checkpoint has lines: Apache Kafka begins it as an empty file."""
    return path.is_file() and path.stat().st_size > 0


@contextlib.contextmanager
def unused(directory: Path) -> Iterator[None]:
    """No broker uses it meanwhile, whichever kind of lock it has: Java's are of fcntl."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(FileNotFoundError):  # no broker has been there
            lock, how = _opened_lock(directory / LOCK_FILE)
            held.callback(os.close, lock)
            try:
                fcntl.lockf(lock, how | fcntl.LOCK_NB)
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                raise DataDirectoryError(
                    f"{directory} is in use", "stop the broker whose directory it is"
                ) from error
        yield


def _opened_lock(path: Path) -> tuple[int, int]:
    """With the kind of lock that it takes: who may only read cannot keep other readers out."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC), fcntl.LOCK_EX
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS):
            raise
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name.endswith(_COPIED))


def _segments(directory: Path) -> list[Path]:
    return [path for path in _files(directory) if path.suffix == ".log"]


def check(log: ForeignLog) -> None:
    """DataDirectoryError for a log that a broker of ours could not serve as the other did: batches
    in a format of before 2017, and records elsewhere."""
    for path in log.path.iterdir():
        if path.name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            raise DataDirectoryError(
                f"{path} is of a compaction that was broken off",
                "start that broker, and stop it in order",
            )
    segments, start = _segments(log.path), log.lines.get(LOG_START_FILE)
    if log.clean and segments and start is not None and start < base_offset_of(segments[0]):
        raise DataDirectoryError(
            f"{log.path} begins after its start {start}: older records are in tiered storage",
            "have Apache Kafka write the topic once more, into a new one",
        )
    for path in segments:
        base_offset_of(path)  # ValueError: it is no segment's name
        if (found := format_of(path)) not in (None, MAGIC):
            raise DataDirectoryError(
                f"{path} holds batches of format {found}; only format {MAGIC} is read",
                "have Apache Kafka write the topic once more, into a new one",
            )
    _check_epoch(log, log.leader_epoch)


def _check_epoch(log: ForeignLog, epoch: int) -> None:
    if not NO_EPOCH <= epoch <= LEADER_EPOCH_MAX:
        raise DataDirectoryError(f"{log.path}: no broker can go on after leader epoch {epoch}")


def records_of(log: ForeignLog) -> Iterator[Record]:
    """Up to the first batch that cannot be read, which only a crash may have left."""
    for path in _segments(log.path):
        with SegmentFile(path) as segment:
            position = 0
            for header in segment.headers():
                try:
                    for batch in decode_batches(segment.bytes_of(header)):
                        position += header.size_bytes
                        yield from batch.records
                except ProtocolError:
                    break
                if position <= header.position:
                    break
            is_whole = position == segment.size_bytes
        if not is_whole and log.clean:
            raise _damaged(log, f"{path} cannot be read from byte {position} on")
        if not is_whole:
            return


def _highest_producer_id(directory: Path) -> int:
    """That the log knows whose segments and snapshots are there, or -1."""
    highest = NO_PRODUCER
    for _, entries in _snapshots(directory):
        highest = max(highest, *(each.producer_id for each in entries), NO_PRODUCER)
    for path in _segments(directory):
        with SegmentFile(path) as segment:
            for batch in segment.headers():
                highest = max(highest, batch.producer_id)
    return highest


def _snapshots(directory: Path) -> Iterator[tuple[int, list[ProducerEntry]]]:
    """As of which offset, and what: those that can be read, oldest first."""
    for offset, path in snapshot_files(directory):
        with contextlib.suppress(SnapshotError):
            yield offset, decode(file_operations.read_file(path))


# --- Copies ---------------------------------------------------------------------------------------


def remove_left_over(directory: Path) -> None:
    """Of an adoption that was broken off; what cannot be removed stays for the next one."""
    for path in directory.glob(f"*{ADOPTING_SUFFIX}"):
        shutil.rmtree(path, ignore_errors=True)


def _free_place(directory: Path) -> Path:
    return directory / f"{uuid4().hex}{ADOPTING_SUFFIX}"


def copied(log: ForeignLog, directory: Path, ends: Ends, now_ms: int) -> Copied:
    """DataDirectoryError where a batch is damaged, other than by a crash at the end."""
    place = _free_place(directory)
    file_operations.make_directory(place)
    for path in _believed(log):
        file_operations.copy_part(path, 0, path.stat().st_size, place / path.name)
    _close_gaps(place)
    write_partition_metadata(place / PARTITION_METADATA_FILE, log.topic_id)
    producer_id = _highest_producer_id(place)
    opened = _opened(log, place)
    start, end = max(opened.log_start_offset, log.start_offset), opened.log_end_offset
    epoch = max(log.leader_epoch, opened.epochs.latest)
    known, size_bytes = opened.producer_entries()[1], opened.size_bytes
    opened.close()
    cut = tuple(sorted(place.glob(f"*{CUT_SUFFIX}")))
    if (cut and log.clean) or end < log.recovery_point:
        raise _damaged(log, f"{log.path} is whole only up to offset {end}")
    if end < start:
        raise _damaged(log, f"{log.path} ends at offset {end}, below its start {start}")
    _check_epoch(log, epoch)
    is_open = sorted(
        (each for each in known if each.transaction_first_offset >= 0),
        key=lambda each: each.transaction_first_offset,
    )
    last = end_of(log.name, end, epoch, is_open, ends, now_ms)
    if last.data:
        file_operations.append_to_file(_segments(place)[-1], last.data)
        opened = _opened(log, place, Checkpointed(recovery_point=end))
        end, size_bytes = opened.log_end_offset, opened.size_bytes
        opened.close()
    return Copied(
        log.name, place, log.lines, start, end, epoch, producer_id, size_bytes, cut, last.ended
    )


def _opened(log: ForeignLog, place: Path, checkpointed: Checkpointed = UNKNOWN) -> PartitionLog:
    try:
        return open_partition_log(place, *log.name, log.topic_id, {}, checkpointed, is_known=True)
    except KafkaError as error:
        raise _damaged(log, error.message.replace(str(place), str(log.path))) from error


def _believed(log: ForeignLog) -> list[Path]:
    """Of a broker that was killed no snapshot above the recovery point: a power cut may have taken
    batches that it knows."""
    above = (
        set()
        if log.clean
        else {path for offset, path in snapshot_files(log.path) if offset > log.recovery_point}
    )
    return [path for path in _files(log.path) if path not in above]


def _close_gaps(directory: Path) -> None:
    """A log goes on where a segment ends, or something was lost. Apache Kafka's compaction leaves
    segments that end below the next one's beginning: a batch of no record ends those there. What
    is damaged, or ends with zeros, stays as it is, and so does a jump that no segment could hold.
    """
    epoch = NO_EPOCH
    for path, following in itertools.pairwise(_segments(directory)):
        with SegmentFile(path) as segment:
            base_offset, position, end = segment.base_offset, 0, segment.base_offset
            for batch in segment.headers():
                position, end = batch.position + batch.size_bytes, batch.last_offset + 1
                epoch = batch.leader_epoch
            is_whole = position == segment.size_bytes
        last = base_offset_of(following) - 1
        if is_whole and end <= last <= base_offset + INT_MAX:
            file_operations.append_to_file(path, _empty_batch(last, epoch))


def _empty_batch(offset: int, leader_epoch: int) -> bytes:
    """A batch that has that offset alone, and no record."""

    def sealed(crc: int) -> bytes:
        return BATCH_HEADER.pack(
            offset, HEADER_BYTES - LOG_OVERHEAD_BYTES, leader_epoch, MAGIC, crc, 0, 0,
            NO_TIMESTAMP, NO_TIMESTAMP, NO_PRODUCER, -1, -1, 0,
        )  # fmt: skip

    return sealed(crc32c(sealed(0)[ATTRIBUTES_BEGIN:]))


def _damaged(log: ForeignLog, what: str) -> DataDirectoryError:
    """The first damage that is found in its files; `what` where they are sound one by one."""
    damage = (each for each in verify(log.path).damage if each.path.suffix == ".log")
    return DataDirectoryError(
        str(next(damage, what)),
        f"kbroker dump-log --verify {log.path} shows all that is damaged",
    )


def placed(logs: Iterable[Copied], directory: DataDirectory) -> list[Copied]:
    """As logs of this directory, which is open and has none of their names. OSError half way."""
    found: list[Copied] = []
    for log in logs:
        target = directory.path / str(log.name)
        file_operations.sync_directory(log.path)
        file_operations.rename(log.path, target)
        cut = tuple(target / path.name for path in log.cut)
        found.append(log._replace(path=target, cut=cut))
    file_operations.sync_directory(directory.path)
    for log in found:
        directory.forget(log.name)
        directory.keep(log.name, {file: at for file, at in _lines(log).items() if at > 0})
    for file in CHECKPOINT_FILES:
        directory.write_checkpoint(file, directory.kept(file))
    return found


def _lines(log: Copied) -> dict[str, int]:
    """What the checkpoints say of it."""
    start, end = log.start_offset, log.end_offset
    return {
        RECOVERY_POINT_FILE: end,
        HIGH_WATERMARK_FILE: max(start, min(log.lines.get(HIGH_WATERMARK_FILE, end), end)),
        LOG_START_FILE: start,
        CLEANER_FILE: min(log.lines.get(CLEANER_FILE, 0), end),
    }


def undone(logs: Iterable[Copied], directory: DataDirectory) -> None:
    """Undoes what `placed` has begun; an error that comes from here would hide the first."""
    for log in logs:
        directory.forget(log.name)
        with contextlib.suppress(OSError):
            place = _free_place(directory.path)
            file_operations.rename(directory.path / str(log.name), place)
    for file in CHECKPOINT_FILES:
        path, lines = directory.path / file, directory.kept(file)
        with contextlib.suppress(OSError, CheckpointError):
            if read_offsets(path) != lines:  # whatever a write that failed has left
                write_offsets(path, lines)
