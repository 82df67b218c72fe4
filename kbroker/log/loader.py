"""Opening a log: what is in the directory, what a crash left of it, and from where it goes on.

After a clean stop every file is trusted but for a look at its last entries. After a crash each
segment beyond the recovery point is read from its start and every CRC checked: the first bad batch
ends the log, the file is cut there, segments behind it are removed, indexes are written anew.
Producers come from the newest snapshot and the batches behind it.

Runs on the thread that opens (start, or the controller's for a new topic) before anybody else
knows the log. A directory that cannot be read is an OSError: the log, not the broker, is lost.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kbroker.log import file_operations, producer_snapshots
from kbroker.log._results import LoadedSegment
from kbroker.log.checkpoints import (
    PARTITION_METADATA_FILE,
    CheckpointError,
    read_partition_metadata,
    write_partition_metadata,
)
from kbroker.log.partition_log import PartitionLog

logger = logging.getLogger("kbroker.log")

_SEGMENT_FILE: Final = re.compile(r"(\d{20})\.(log|index|timeindex|snapshot|txnindex)")
# Left by a crash in the middle of a deletion, a compaction or a checkpoint: never needed again.
_LEFT_OVER: Final = (".deleted", ".cleaned", ".swap", ".tmp")


@dataclass(frozen=True)
class Checkpointed:
    """What the data directory's checkpoints say of one log."""

    clean: bool = False
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0


UNKNOWN: Final = Checkpointed()


def open_partition_log(
    directory: Path,
    topic: str,
    index: int,
    topic_id: uuid.UUID,
    settings: Mapping[str, Any],
    checkpointed: Checkpointed = UNKNOWN,
) -> PartitionLog:
    """Opens the log in `directory`, or begins one there. `settings` as `configure` takes them."""
    file_operations.make_directory(directory)
    _check_topic_id(directory, topic_id)
    log = PartitionLog(str(directory), topic, index, topic_id)
    log.configure(**settings)
    bases = _segment_bases(directory)
    if not bases:
        log.create_segment(checkpointed.log_start_offset)
        log.begin(*[checkpointed.log_start_offset] * 3)
        return log
    last = _load_segments(log, directory, bases, checkpointed)
    _restore_producers(log, directory, bases[0], last.next_offset)
    if not log.epochs.entries and last.next_offset > bases[0]:
        log.epochs.restore(log.find_epochs())
    log.epochs.truncate_from_end(last.next_offset)
    log_start_offset = max(bases[0], min(checkpointed.log_start_offset, last.next_offset))
    recovery_point = last.next_offset
    if not checkpointed.clean:
        recovery_point = min(max(checkpointed.recovery_point, log_start_offset), recovery_point)
    log.begin(log_start_offset, last.next_offset, recovery_point)
    log.set_high_watermark(checkpointed.high_watermark)
    return log


def _check_topic_id(directory: Path, topic_id: uuid.UUID) -> None:
    path = directory / PARTITION_METADATA_FILE
    known = read_partition_metadata(path)
    if known is None:
        write_partition_metadata(path, topic_id)
    elif known != topic_id:
        raise CheckpointError(f"{directory} belongs to topic id {known}, not to {topic_id}")


def _segment_bases(directory: Path) -> list[int]:
    """Base offsets in order. Removes what is left over and indexes without a log."""
    bases: set[int] = set()
    others: list[tuple[int, Path]] = []
    for entry in file_operations.list_directory(directory):
        path = Path(entry.path)
        match = _SEGMENT_FILE.fullmatch(path.name)
        if match is None:
            if path.name.endswith(_LEFT_OVER):
                file_operations.unlink(path)
        elif match[2] == "log":
            bases.add(int(match[1]))
        elif match[2] != "snapshot":
            others.append((int(match[1]), path))
    for base, path in others:
        if base not in bases:
            file_operations.unlink(path)
    return sorted(bases)


def _load_segments(
    log: PartitionLog, directory: Path, bases: list[int], checkpointed: Checkpointed
) -> LoadedSegment:
    """Loads each segment; answers the last one, which is active. Cuts what a crash has torn."""
    for at, base in enumerate(bases):
        following = bases[at + 1] if at + 1 < len(bases) else None
        beyond = following is None or following > checkpointed.recovery_point
        loaded = log.load_segment(
            base,
            active=following is None,
            recover=(not checkpointed.clean and beyond) or not _has_indexes(directory, base),
        )
        if loaded.reason:
            logger.warning(
                "%s: segment %d is good up to byte %d of %d: %s",
                log.name, base, loaded.valid_bytes, loaded.file_bytes, loaded.reason,
            )  # fmt: skip
        if loaded.reason and following is not None:
            return _end_at(log, directory, loaded, bases[at + 1 :])
    return loaded


def _has_indexes(directory: Path, base: int) -> bool:
    return all((directory / f"{base:020d}.{suffix}").exists() for suffix in ("index", "timeindex"))


def _end_at(
    log: PartitionLog, directory: Path, torn: LoadedSegment, behind: list[int]
) -> LoadedSegment:
    """A segment in the middle is torn: it becomes the active one, what follows is removed."""
    for base in behind:
        for suffix in ("log", "index", "timeindex", "txnindex", "snapshot"):
            file_operations.unlink(directory / f"{base:020d}.{suffix}")
    log.unload_last_segment()
    return log.load_segment(torn.base_offset, active=True, recover=True)


def _restore_producers(log: PartitionLog, directory: Path, start: int, end: int) -> None:
    offset, entries = producer_snapshots.load_newest(directory, end)
    for entry in entries:
        log.restore_producer(entry)
    log.replay_producers(max(offset, start))
