"""Whether a log's directory is sound, file by file: for `kbroker dump-log --verify`.

Every batch of every segment with its CRC and its records, the indexes against the batches, the
segments against each other, and the small files by themselves. An error in one file does not end
the check of the others. Read-only; no broker has to run, and one may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kbroker.log.engine.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    read_leader_epochs,
    read_partition_metadata,
)
from kbroker.log.engine.producer_snapshots import decode
from kbroker.log.looking.dump import (
    OF_THE_WHOLE_FILE,
    DamagedLog,
    IndexCheck,
    SegmentFile,
    aborted_transactions,
    base_offset_of,
)


@dataclass
class Verified:
    """What was found in one directory; `damage` is in the order of the files."""

    directory: Path
    segments: int = 0
    batches: int = 0
    records: int = 0
    first_offset: int = 0  # of the first segment's name
    next_offset: int = 0
    damage: list[DamagedLog] = field(default_factory=list)


def verify(directory: Path) -> Verified:
    """All that is wrong with the files of a partition; OSError if they cannot be listed."""
    found = Verified(directory)
    names = sorted(path for path in directory.iterdir() if path.is_file())
    segments = [path for path in names if path.suffix == ".log"]
    _collect(found, segments, _Segments(found, segments[-1:]).check)
    for suffix, check in ((".txnindex", _check_aborted), (".snapshot", _check_snapshot)):
        _collect(found, [path for path in names if path.suffix == suffix], check)
    small: dict[str, Callable[[Path], object]] = {
        LEADER_EPOCH_FILE: read_leader_epochs,
        PARTITION_METADATA_FILE: read_partition_metadata,
    }
    for path in names:
        if path.name in small:
            _collect(found, [path], small[path.name])
    return found


def _collect(found: Verified, paths: list[Path], check: Callable[[Path], object]) -> None:
    for path in paths:
        try:
            check(path)
        except DamagedLog as damage:
            found.damage.append(damage)
        except (OSError, ValueError) as error:
            what = str(error).removeprefix(f"{path}: ")
            found.damage.append(DamagedLog(path, OF_THE_WHOLE_FILE, 0, what))


class _Segments:
    """The `.log` files of one directory in their order."""

    def __init__(self, found: Verified, active: list[Path]) -> None:
        """`active`: the last one, which may have been made longer beforehand."""
        self._found = found
        self._active = active
        self._epoch = -1

    def check(self, path: Path) -> None:
        found, base_offset = self._found, base_offset_of(path)
        if not found.segments:
            found.first_offset = found.next_offset = base_offset
        found.segments += 1
        if base_offset < found.next_offset:
            raise DamagedLog(
                path, base_offset, 0, f"the segment before it ends with {found.next_offset - 1}"
            )
        index = IndexCheck(path)
        with SegmentFile(path) as segment:
            try:
                for batch in segment.batches():
                    if 0 <= batch.leader_epoch < self._epoch:
                        raise DamagedLog(
                            path, batch.base_offset, batch.position,
                            f"leader epoch {batch.leader_epoch} after {self._epoch}",
                        )  # fmt: skip
                    self._epoch = batch.leader_epoch
                    index.see(batch)
                    found.batches += 1
                    found.records += batch.record_count
                index.end()
                if segment.zeros_at is not None and path not in self._active:
                    raise DamagedLog(
                        path, segment.next_offset, segment.zeros_at,
                        f"{segment.size_bytes - segment.zeros_at} zeros that are no batch",
                    )  # fmt: skip
            finally:
                found.next_offset = segment.next_offset
                found.damage += index.damage


def _check_aborted(path: Path) -> None:
    for _entry in aborted_transactions(path):
        pass


def _check_snapshot(path: Path) -> None:
    decode(path.read_bytes())
