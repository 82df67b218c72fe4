"""One partition's log with everything that stands beside its segments.

`kbroker._log.PartitionLog` is the log itself: segments, indexes, producers, offsets. This adds what
Python keeps in files: leader epochs, producer snapshots, the topic's id; and what becomes of the
directory when a topic is deleted. Made by the loader; the replica layer holds it and calls it from
one thread at a time, while the request path uses the `Partition*` inside.

Lock: the partition's own, taken by the methods below it. Nothing here is called by a request.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, Final

from kbroker import _log
from kbroker.log import producer_snapshots
from kbroker.log.checkpoints import LEADER_EPOCH_FILE, sync_directory
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.validator import batch_offsets, unpack_and_walk
from kbroker.types import TopicPartition

DELETED_SUFFIX: Final = "-delete"
# The longest name that file systems take.
DIRECTORY_NAME_CHARS_MAX: Final = 255


class PartitionLog(_log.PartitionLog):
    """A log with its leader epochs and snapshots. Opened by `loader.open_partition_log`."""

    def __init__(self, directory: str, topic: str, index: int, topic_id: uuid.UUID) -> None:
        super().__init__(directory, topic, index, topic_id)
        self.path = Path(directory)
        self.name = TopicPartition(topic, index)
        self.epochs = LeaderEpochs(self.path / LEADER_EPOCH_FILE)
        self._snapshot_offset = -1
        self._synced_base_offset = -1

    def set_leadership(
        self, leader_id: int, is_leader: bool, leader_epoch: int, in_sync_count: int
    ) -> None:
        """Who leads. A leader's epoch begins at the log's end, on the disk before it is used."""
        if is_leader:
            self.epochs.assign(leader_epoch, self.log_end_offset)
        super().set_leadership(leader_id, is_leader, leader_epoch, in_sync_count)

    def configure(self, *, segment_jitter_ms: int = 0, **settings: Any) -> None:
        """As the log's own, but for the jitter: here it is the bound, and one is drawn from it."""
        if segment_jitter_ms > 0:
            import random

            segment_jitter_ms = random.randrange(segment_jitter_ms)
        super().configure(segment_jitter_ms=segment_jitter_ms, **settings)

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record not older, below the watermark."""
        found = self.find_by_time(timestamp_ms)
        while found is not None and found[3]:
            batch = self.read(found[0], 1)
            walk = unpack_and_walk(
                batch, wanted_timestamp_ms=timestamp_ms, from_offset=self.log_start_offset
            )
            base_offset, last_offset, leader_epoch = batch_offsets(batch)
            if walk.found_delta >= 0:
                return base_offset + walk.found_delta, walk.found_timestamp_ms, leader_epoch
            found = self.find_by_time(timestamp_ms, last_offset + 1)
        return found[:3] if found is not None else None

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """The same for the first record with the largest timestamp; None if there are none."""
        found = self.find_max_timestamp()
        if found is None or not found[3]:
            return found[:3] if found is not None else None
        batch = self.read(found[0], 1)
        walk = unpack_and_walk(batch)
        base_offset, _, leader_epoch = batch_offsets(batch)
        return base_offset + walk.max_timestamp_delta, walk.max_timestamp_ms, leader_epoch

    def write_snapshot(self, *, sync: bool = False) -> bool:
        """Writes the producers' state, if there is something new. True if a file was written."""
        offset, entries = self.producer_entries()
        if offset == self._snapshot_offset or (not entries and self._snapshot_offset < 0):
            return False
        producer_snapshots.write(self.path, offset, entries, sync=sync)
        self._snapshot_offset = offset
        return True

    def flush(self, *, active: bool = True) -> int:
        """Brings the log to the disk, and the names of its newest files; the recovery point."""
        recovery_point = super().flush(active=active)
        base_offset = self.active_base_offset
        if base_offset != self._synced_base_offset:
            sync_directory(self.path)
            self._synced_base_offset = base_offset
        return recovery_point

    def flush_rolled(self) -> bool:
        """Brings segments that are full to the disk, and a snapshot with them. True if it did."""
        if self.active_base_offset <= self.recovery_point:
            return False
        self.flush(active=False)
        self.write_snapshot(sync=True)
        return True

    def close(self, *, clean: bool = True) -> None:
        """Ends the log. `clean`: everything is on the disk, so that the next open reads little."""
        if clean and self.online:
            if self.recovery_point < self.log_end_offset:
                self.flush()
            self.write_snapshot(sync=True)
        super().close()

    def delete(self) -> Path:
        """Ends the log and renames its directory; the files in it are removed later.

        Slices that were lent can still be sent. Answers the new path.
        """
        super().close()
        target = deleted_path(self.path)
        os.rename(self.path, target)
        return target


def deleted_path(path: Path) -> Path:
    """`<topic>-<partition>.<unique>-delete`, cut so that the name stays one."""
    suffix = f".{uuid.uuid4().hex}{DELETED_SUFFIX}"
    return path.with_name(path.name[: DIRECTORY_NAME_CHARS_MAX - len(suffix)] + suffix)
