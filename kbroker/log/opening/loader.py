"""Opening a log: what is in the directory, what a crash left of it, and from where it goes on.

After a clean stop every file is trusted but for a look at its last entries; bytes that are no batch
at the end of a full segment stay, are never sent, and reading goes on at the next segment. After a
crash each segment beyond the recovery point is read from its start and every CRC checked: the first
bad batch ends the log, and the bytes after it are kept aside (`set_aside.py`). Indexes that are
missing or do not fit are written again. Producers come from the newest snapshot and the batches
after it.

A disk that does not answer is not a disk that holds damage: any failed operation is an OSError,
nothing is cut for it, and the log, not the broker, stays closed until a later start can read it.
Segments that overlap are for an operator to look at.

Runs on the thread that opens (start, or the controller's for a new topic) before any other has the
log.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.log.engine import file_operations, producer_snapshots
from kbroker.log.engine._flush_times import FlushTimes
from kbroker.log.engine._results import LoadedSegment, LogFiles
from kbroker.log.engine.checkpoints import (
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    NO_EPOCHS,
    PARTITION_METADATA_FILE,
    UNKNOWN_START,
    CheckpointError,
    read_partition_metadata,
    write_partition_metadata,
)
from kbroker.log.engine.leader_epochs import NO_EPOCH
from kbroker.log.engine.partition_log import PartitionLog, has_no_checkpoint
from kbroker.log.engine.segment_files import SegmentFile, find_segments, remove_segment
from kbroker.log.opening._opening import (
    activate_last_segment,
    cut_last_segment,
    load_segment,
    unload_last_segment,
)
from kbroker.log.opening.set_aside import keep_segments, keep_tail

logger = logging.getLogger("kbroker.log")


@dataclass(frozen=True)
class Checkpointed:
    """What the data directory's checkpoints say of one log."""

    clean: bool = False
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    cleaned_to: int = 0


UNKNOWN: Final = Checkpointed()
# Offsets are kept by 32 bits in a segment; a batch has no more than some.
_JUMP_MIN: Final = 1 << 30


def goes_on() -> None:
    """The load is not ended."""


def open_partition_log(
    directory: Path,
    topic: str,
    index: int,
    topic_id: uuid.UUID,
    settings: Mapping[str, Any],
    checkpointed: Checkpointed = UNKNOWN,
    flush_times: FlushTimes | None = None,
    *,
    is_known: bool = False,
    files: LogFiles | None = None,
    go_on: Callable[[], None] = goes_on,
    points_fell: Callable[[PartitionLog], None] = has_no_checkpoint,
) -> PartitionLog:
    """Opens the log in `directory`, or begins one there. `settings` as `configure` takes them.

    `flush_times` counts its flushes; without one they are not counted. `is_known`: the directory is
    known to be that topic's; `files` is its content, as far as it was listed. `go_on` is called
    before each segment is read; it may raise. `points_fell`: as `PartitionLog` has it.
    """
    if checkpointed.log_start_offset == UNKNOWN_START:
        raise CheckpointError(
            f"{directory.parent / LOG_START_FILE} does not say where {topic}-{index} begins; stop"
            f" the broker and put the offset into the line {f'{topic} {index} {UNKNOWN_START}'!r}"
            " (0: no record of it was deleted)"
        )
    if not is_known:
        file_operations.make_directory(directory)
        _check_topic_id(directory, topic_id)
    epochs = None
    if files is not None:
        epochs = files.epochs if LEADER_EPOCH_FILE in files.sizes else NO_EPOCHS
    log = PartitionLog(str(directory), topic, index, topic_id, epochs, directory, points_fell)
    log.configure(**settings)
    if flush_times is not None:
        log.count_flushes(flush_times)
    log.checkpointed_high_watermark = checkpointed.high_watermark
    try:
        if _load(log, directory, checkpointed, None if files is None else files.sizes, go_on):
            log.cleaned_to = min(checkpointed.cleaned_to, log.log_end_offset)
            log.start_on_file = log.log_start_offset
            return log
    except BaseException:
        log.abandon()
        raise
    log.abandon()
    # What is left was deleted, and offsets are given out once: it goes on at its start, empty, as
    # in Apache Kafka.
    logger.warning(
        "%s ends below its start %d, and begins anew there", log.name, checkpointed.log_start_offset
    )
    _keep_all_aside(directory)
    return open_partition_log(
        directory, topic, index, topic_id, settings, checkpointed, flush_times,
        is_known=is_known, go_on=go_on, points_fell=points_fell,
    )  # fmt: skip


def _keep_all_aside(directory: Path) -> None:
    files = find_segments(directory)
    keep_segments(directory, [file.base_offset for file in files])
    producer_snapshots.remove_all(directory)


def _load(
    log: PartitionLog,
    directory: Path,
    checkpointed: Checkpointed,
    sizes: Mapping[str, int] | None,
    go_on: Callable[[], None],
) -> bool:
    """False: it ends below its start. `sizes`: of the files there are, if they were listed
    already."""
    files = find_segments(directory, sizes)
    if not files:
        start = checkpointed.log_start_offset
        log.create_segment(start)
        # Of batches that are gone nothing is known.
        log.restore_producers(start)
        log.epochs.truncate_from_end(start if checkpointed.clean else 0)
        log.begin(*[start] * 3)
        return True
    last = _load_segments(_Loading(log, directory, checkpointed, files), go_on)
    if last.next_offset < checkpointed.log_start_offset:
        return False
    first_offset = files[0].base_offset
    log.restore_producers(last.next_offset, sizes)
    log_start_offset = max(first_offset, checkpointed.log_start_offset)
    recovery_point = settled = last.next_offset
    if not checkpointed.clean:
        settled = min(checkpointed.recovery_point, settled)
        recovery_point = min(max(settled, log_start_offset), recovery_point)
    _restore_epochs(log, settled, last.next_offset)
    log.epochs.truncate_from_start(log_start_offset)
    log.begin(log_start_offset, last.next_offset, recovery_point)
    return True


def _restore_epochs(log: PartitionLog, settled_offset: int, end_offset: int) -> None:
    """The file has the epochs below the first offset, the batches those from it on, below the log's
    start as well: the last of them is the epoch in which the start lies."""
    log.epochs.truncate_from_end(settled_offset)
    known = log.epochs.latest
    if known == NO_EPOCH:
        log.epochs.add(log.find_epochs())
    elif settled_offset < end_offset:
        log.epochs.add(log.find_epochs(known, settled_offset))


def _check_topic_id(directory: Path, topic_id: uuid.UUID) -> None:
    path = directory / PARTITION_METADATA_FILE
    known = read_partition_metadata(path)
    if known is None:
        write_partition_metadata(path, topic_id)
    elif known != topic_id:
        raise CheckpointError(f"{directory} belongs to topic id {known}, not to {topic_id}")


@dataclass
class _Loading:
    """A log on its way: what was known of it, and which segments its directory has."""

    log: PartitionLog
    directory: Path
    checkpointed: Checkpointed
    files: list[SegmentFile]
    has_gaps: bool = False  # in what was loaded so far

    def path(self, base_offset: int) -> Path:
        return self.directory / f"{base_offset:020d}.log"

    def must_recover(self, at: int) -> bool:
        """Whether the end of the process may have torn this segment."""
        if self.checkpointed.clean:
            return False
        later = [file for file in self.files[at + 1 :] if file.size_bytes]
        return not later or later[0].base_offset > self.checkpointed.recovery_point

    def is_lost_before(self, at: int, end_offset: int) -> bool:
        """Whether the log went on once, up to this segment: a power cut leaves the name of a file
        that is newer than the bytes which it takes. A segment begins where the one before it ends,
        except after a jump that no segment could hold, and where the cleaner dropped the batches
        between them. It cleans what is settled alone; in a directory that lost its checkpoint the
        segments up to here tell whether it was there."""
        base_offset, known = self.files[at].base_offset, self.checkpointed
        if base_offset <= max(known.recovery_point, known.cleaned_to):
            return False
        if not known.recovery_point and self.has_gaps:
            return False
        return 0 < base_offset - end_offset < _JUMP_MIN and self.must_recover(at - 1)


def _load_segments(loading: _Loading, go_on: Callable[[], None]) -> LoadedSegment:
    """Loads each segment; answers the last one, which is active. Cuts what a crash has torn."""
    log, files = loading.log, loading.files
    loaded: LoadedSegment | None = None
    for at, file in enumerate(files):
        go_on()
        if (
            loaded is not None
            and not file.size_bytes
            and (at + 1 < len(files) or file.base_offset < loaded.next_offset)
        ):
            # Left by a roll that failed and could not be undone.
            remove_segment(loading.directory, file.base_offset)
            continue
        if loaded is not None and file.base_offset < loaded.next_offset:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"segments overlap: {loading.path(loaded.base_offset)} ends at offset"
                f" {loaded.next_offset}, after {loading.path(file.base_offset).name} begins;"
                " nothing was changed; move one of them away",
            )
        if loaded is not None and loading.is_lost_before(at, loaded.next_offset):
            logger.warning(
                "%s: the records from offset %d up to %d are lost; the log ends there",
                log.name, loaded.next_offset, file.base_offset,
            )  # fmt: skip
            _keep_aside_from(loading, at)
            break
        loaded = load_segment(log, file.base_offset, recover=loading.must_recover(at))
        loading.has_gaps |= loaded.has_gaps
        if loaded.reason and (loading.must_recover(at) or at + 1 == len(files)):
            loaded = _end_here(loading, at, loaded)
            break
        if loaded.reason:
            _log_end(loading, loaded, "the rest stays, and cannot be read")
    if loaded is None:
        raise InvariantError(f"{loading.directory}: no segment to load")
    activate_last_segment(log, at_once=loaded.rebuilt or bool(loaded.reason))
    return loaded


def _end_here(loading: _Loading, at: int, damaged: LoadedSegment) -> LoadedSegment:
    """The log ends with the last sound batch of this segment; the rest is kept aside."""
    log = loading.log
    if not damaged.rebuilt:  # trusted until now: which batches are sound?
        unload_last_segment(log)
        damaged = load_segment(log, damaged.base_offset, recover=True)
    path = loading.path(damaged.base_offset)
    _log_end(loading, damaged, "the log ends there")
    keep_tail(path, damaged.valid_bytes, damaged.file_bytes, torn=damaged.torn)
    _keep_aside_from(loading, at + 1)
    cut_last_segment(log, damaged.valid_bytes)
    return damaged


def _keep_aside_from(loading: _Loading, at: int) -> None:
    later = loading.files[at:]
    for file in later:
        if not file.size_bytes:
            remove_segment(loading.directory, file.base_offset)
    keep_segments(loading.directory, [file.base_offset for file in later if file.size_bytes])


def _log_end(loading: _Loading, loaded: LoadedSegment, so: str) -> None:
    logger.warning(
        "%s: %s is good up to byte %d of %d: %s; %s", loading.log.name,
        loading.path(loaded.base_offset), loaded.valid_bytes, loaded.file_bytes, loaded.reason, so,
    )  # fmt: skip
