"""One partition's log with everything that stands beside its segments.

`kbroker._log.PartitionLog` is the log itself: segments, indexes, producers, offsets. This adds what
Python keeps in files: leader epochs, producer snapshots, the topic's id; and what becomes of the
files when records or a topic are deleted. Made by the loader; the replica layer holds it, while the
request path uses the `Partition*` inside. `delete_records` from any thread, `trim` and the flushes
from the scheduler's, the rest from one thread at a time.

Lock: the partition's own, taken by the methods below it. Nothing here is called by a request.
"""

from __future__ import annotations

import errno
import uuid
from pathlib import Path
from typing import Any, Final

from kbroker import _log
from kbroker.config.key import LONG_MAX
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log import _describe, file_operations, producer_snapshots
from kbroker.log._trim import drop_below_start, move_start, segments_below_start
from kbroker.log.checkpoints import LEADER_EPOCH_FILE
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.segment_files import DELETED_FILE_SUFFIX
from kbroker.log.validator import batch_offsets, unpack_and_walk
from kbroker.types import TopicPartition

DELETED_SUFFIX: Final = "-delete"
SEGMENT_SUFFIXES: Final = ("log", "index", "timeindex", "txnindex")
# Of `file.delete.delay.ms`.
FILE_DELETE_DELAY_MS: Final = 60_000
# The longest name that file systems take.
DIRECTORY_NAME_CHARS_MAX: Final = 255


class PartitionLog(_log.PartitionLog):
    """A log with its leader epochs and snapshots. Opened by `loader.open_partition_log`."""

    def __init__(self, directory: str, topic: str, index: int, topic_id: uuid.UUID) -> None:
        super().__init__(directory, topic, index, topic_id)
        self.path = Path(directory)
        self.name = TopicPartition(topic, index)
        self.epochs = LeaderEpochs(self.path / LEADER_EPOCH_FILE, self.set_epochs)
        self._snapshot_offset = -1
        self._trimmed_to = 0
        # Segments out of the log: whose files have their names yet, and files that had them.
        self._dropped: list[int] = []
        self._renamed: list[Path] = []

    def set_leadership(
        self, leader_id: int, is_leader: bool, leader_epoch: int, in_sync_count: int
    ) -> None:
        """Who leads. A leader's epoch begins at the log's end, on the disk before it is used."""
        if is_leader:
            self.epochs.assign(leader_epoch, self.log_end_offset)
        super().set_leadership(leader_id, is_leader, leader_epoch, in_sync_count)

    def configure(
        self,
        *,
        segment_jitter_ms: int = 0,
        flush_ms: int = LONG_MAX,
        file_delete_delay_ms: int = FILE_DELETE_DELAY_MS,
        **settings: Any,
    ) -> None:
        """As the log's own, and what the manager asks of it in the background.

        The jitter is the bound here, and one is drawn from it.
        """
        self.flush_ms = flush_ms
        self.file_delete_delay_ms = file_delete_delay_ms
        if segment_jitter_ms > 0:
            import random

            segment_jitter_ms = random.randrange(segment_jitter_ms)
        super().configure(segment_jitter_ms=segment_jitter_ms, **settings)

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record not older, below the watermark."""
        found = self.find_by_time(timestamp_ms)
        while found is not None and found[3]:
            batch = self._batch_at(found[0])
            if batch is None:
                found = self.find_by_time(timestamp_ms)  # the start has moved on
                continue
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
        batch = self._batch_at(found[0])
        if batch is None:
            return None
        walk = unpack_and_walk(batch)
        base_offset, _, leader_epoch = batch_offsets(batch)
        return base_offset + walk.max_timestamp_delta, walk.max_timestamp_ms, leader_epoch

    def _batch_at(self, base_offset: int) -> bytes | None:
        """The whole batch that begins there; None if all its records have been deleted."""
        try:
            batch = self.read(max(base_offset, self.log_start_offset), 1)
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            raise
        return batch if batch and batch_offsets(batch)[0] == base_offset else None

    def delete_records(self, offset: int) -> int:
        """Moves the log's start forward, -1 to the high watermark; answers where it is then."""
        return move_start(self, offset)

    def trim(self) -> list[Path]:
        """Takes segments below the log's start out of it; their renamed files, to be removed later.

        What they say of producers goes into a snapshot first, since replay finds it no more. A file
        that cannot be renamed is an OSError, and its turn comes again.
        """
        start = self.log_start_offset
        if start != self._trimmed_to:
            self.epochs.truncate_from_start(start)
            self._trimmed_to = start
        if segments_below_start(self):
            self.write_snapshot(sync=True)
            self._dropped += drop_below_start(self)
        while self._dropped:
            base_offset = self._dropped[0]
            # The .log first: without it the next start takes the indexes for left over.
            for suffix in SEGMENT_SUFFIXES:
                path = self.path / f"{base_offset:020d}.{suffix}"
                target = path.with_name(path.name + DELETED_FILE_SUFFIX)
                try:
                    file_operations.rename(path, target)
                except FileNotFoundError:
                    continue  # no such index, or the whole topic is gone
                self._renamed.append(target)
            del self._dropped[0]
        renamed, self._renamed = self._renamed, []
        return renamed

    def encode_producers(self) -> tuple[int, bytes]:
        """How many producers the log knows, and they as DescribeProducers v0 carries them."""
        return _describe.encode_producers(self)

    def write_snapshot(self, *, sync: bool = False) -> bool:
        """Writes the producers' state, if there is something new. True if a file was written."""
        offset, entries = self.producer_entries()
        if offset == self._snapshot_offset or (not entries and self._snapshot_offset < 0):
            return False
        producer_snapshots.write(self.path, offset, entries, sync=sync)
        self._snapshot_offset = offset
        return True

    def flush_rolled(self) -> bool:
        """Brings segments that are full to the disk, and a snapshot with them. True if it did."""
        rolled = self.active_base_offset > self.settled_offset
        if rolled:
            self.flush(active=False)
            self.write_snapshot(sync=True)
        self.epochs.settle(self.recovery_point)
        return rolled

    @property
    def settled(self) -> bool:
        """Whether all of it is on the disk, as a clean stop leaves it."""
        end = self.log_end_offset
        return self.settled_offset >= end and self.epochs.unsettled_from >= end

    @property
    def settled_recovery_point(self) -> int:
        """What may be promised to a later start, which will not read the batches below.

        No further than where the first leader epoch begins that only those batches tell of.
        """
        return min(self.recovery_point, self.epochs.unsettled_from)

    def close(self, *, clean: bool = True) -> None:
        """Ends the log. `clean`: everything is on the disk, so that the next open reads little.

        OSError if that cannot be had, because a write was lost or is lost now.
        """
        if clean and not self.online and self.active_base_offset >= 0:
            super().close()
            raise OSError(errno.EIO, "it went offline when a write was lost", str(self.path))
        if clean and self.online:
            if self.settled_offset < self.log_end_offset:
                self.flush(whole=True)
            self.write_snapshot(sync=True)
            self.epochs.settle(self.log_end_offset)
        super().close()

    def abandon(self) -> None:
        """Lets go of a log whose opening failed; its files are left as a clean stop leaves them."""
        super().close()

    def delete(self) -> Path:
        """Ends the log and renames its directory; the files in it are removed later.

        Slices that were lent can still be sent. Answers the new path.
        """
        super().close()
        target = deleted_path(self.path)
        file_operations.rename(self.path, target)
        return target


def deleted_path(path: Path) -> Path:
    """`<topic>-<partition>.<unique>-delete`, cut so that the name stays one."""
    suffix = f".{uuid.uuid4().hex}{DELETED_SUFFIX}"
    return path.with_name(path.name[: DIRECTORY_NAME_CHARS_MAX - len(suffix)] + suffix)
