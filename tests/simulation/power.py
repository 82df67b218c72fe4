"""A power cut: a broker's logs keep all synced bytes, and as many more as the dice give.

Below the recovery point everything is on the disk. After it any number of bytes may be there, to
the middle of a batch. Names and indexes of later segments and the newest snapshots may be gone or
empty, unless they were synced, and so may a file of leader epochs that lacks an entry. The
checkpoints and the directory's own files are always synced by their writers.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kbroker.log.engine.checkpoints import LEADER_EPOCH_FILE
from kbroker.replica._replica import Replica

_INDEXES = (".index", ".timeindex")
_SNAPSHOT = ".snapshot"


class Synced(NamedTuple):
    """The synced part of one log, as the log has it before the power cut."""

    directory: Path
    recovery_point: int
    epochs_settled: bool

    @classmethod
    def of(cls, replica: Replica, checkpointed: int) -> Synced:
        """`checkpointed`: its recovery point on the disk. The file says more than the log where a
        cut was given up: the lower point could not be written, so no byte of the log has changed.
        `Safety` fails where one has."""
        log = replica.log
        settled = log.epochs.unsettled_from >= log.log_end_offset
        point = max(log.recovery_point, min(checkpointed, log.log_end_offset))
        return cls(log.path, point, settled)


def cut_power(
    synced: Synced, place_of: Callable[[int], tuple[int, int]], dice: random.Random
) -> None:
    """`place_of` an offset: the segment's base offset, and the position in its file."""
    base, position = place_of(synced.recovery_point)
    segments = [
        (int(path.stem), path)
        for path in sorted(synced.directory.glob("*.log"))
        if int(path.stem) >= base
    ]
    starts = [position if at == base else 0 for at, _ in segments]
    sizes = [path.stat().st_size for _, path in segments]
    left = dice.choice((0, 0, dice.randint(0, sum(sizes) - sum(starts))))
    for start, end, (_, path) in zip(starts, sizes, segments, strict=True):
        size = end - start
        kept = min(size, left)
        left -= kept
        os.truncate(path, start + kept)
        for suffix in _INDEXES:
            if dice.random() < 0.5:
                path.with_suffix(suffix).unlink(missing_ok=True)
    # Names come to the disk in their order.
    for at, path in reversed(segments):
        # That in which the recovery point lies had its name before. So has one that begins at it
        # and is the oldest: `PartitionLog.trim` brings its name to the disk before others go.
        is_oldest = path == segments[0][1] and at <= synced.recovery_point
        if path.stat().st_size or at == base > 0 or dice.random() < 0.5 or is_oldest:
            break
        path.unlink()
    if not synced.epochs_settled and dice.random() < 0.5:
        (synced.directory / LEADER_EPOCH_FILE).write_bytes(b"")
    for path in synced.directory.glob("*" + _SNAPSHOT):
        if int(path.stem) > synced.recovery_point and dice.random() < 0.5:
            path.write_bytes(b"")
