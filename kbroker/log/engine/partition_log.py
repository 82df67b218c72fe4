"""One partition's log with all the files beside its segments.

`kbroker._log.LocalLog` is the log itself: segments, indexes, producers, offsets. This adds what
Python keeps in files: leader epochs, producer snapshots, the topic's id; and what becomes of the
files when records or a topic are deleted. Made by the loader; its replica (`replica/_replica`)
holds it. `trim` and the flushes come from the scheduler's thread, the rest from one thread at a
time.

Locks: the log's own, taken by the methods below it; and one that keeps what changes the set of
files apart, a trim, a cut, a snapshot: one beside a cut would lack the producers that are being
restored. Nothing here is called by a request.
"""

from __future__ import annotations

import errno
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker import _log
from kbroker.config.key import LONG_MAX
from kbroker.log.engine import file_operations, producer_snapshots
from kbroker.log.engine.leader_epochs import LeaderEpochs
from kbroker.log.engine.segment_files import (
    CLEANED_SUFFIX,
    DELETED_FILE_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
)
from kbroker.log.looking import _describe
from kbroker.log.upkeep._trim import drop_below_start, segments_below_start
from kbroker.log.upkeep._truncate import (
    begin_again,
    begin_cut,
    cut_end,
    give_up_cut,
    place_of,
    segments_from,
)
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.log.engine._results import EndedTransaction, ProducerEntry
    from kbroker.log.upkeep._cleaning import Cleaning
    from kbroker.log.upkeep._scrub import SegmentScrub

DELETED_SUFFIX: Final = "-delete"
SEGMENT_SUFFIXES: Final = ("log", "index", "timeindex", "txnindex")
CLEANED_KINDS: Final = SEGMENT_SUFFIXES
# Of `file.delete.delay.ms`.
FILE_DELETE_DELAY_MS: Final = 60_000
KEPT_FOR_EVER: Final = -1
# The longest name that file systems take.
DIRECTORY_NAME_CHARS_MAX: Final = 255


class Compaction(NamedTuple):
    """A topic's settings of its cleaning: `min.cleanable.dirty.ratio`, `min.compaction.lag.ms`,
    `max.compaction.lag.ms`, `delete.retention.ms`."""

    dirty_ratio_min: float = 0.5
    lag_min_ms: int = 0
    lag_max_ms: int = LONG_MAX
    delete_retention_ms: int = 86_400_000


NEVER_TOO_LATE: Final = Compaction()


def has_no_checkpoint(log: PartitionLog) -> None:
    """Of a log that no manager holds."""


def _ignore_end(end_offset: int) -> None:
    """Of a log whose end no replica watches."""


class PartitionLog(_log.LocalLog):
    """A log with its leader epochs and snapshots. Opened by `loader.open_partition_log`."""

    def __init__(
        self,
        directory: str,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        epochs: bytes | None = None,
        path: Path | None = None,
        points_fell: Callable[[PartitionLog], None] = has_no_checkpoint,
    ) -> None:
        """`epochs`: what its file of leader epochs says, if it has been read; `path`: the directory
        again, if there is one.

        `points_fell` is called when the recovery point goes back, or where it was cleaned to,
        before a file is changed: what a checkpoint says is more than will hold. A later start
        would take for settled, or for clean, what is appended below it from now on.
        """
        super().__init__(directory, topic, index, topic_id)
        self.path = path or Path(directory)
        self.name = TopicPartition(topic, index)
        self.epochs = LeaderEpochs(self.path, self.set_epochs, epochs)
        # What the last checkpoint said, for the replica to begin with, and for a later start.
        self.checkpointed_high_watermark = 0
        # Where a later start of the broker lets it begin, at least.
        self.start_on_file = 0
        # What lies below was cleaned: see cleaner.py.
        self.cleaned_to = 0
        self._points_fell: Final = points_fell
        self._changing = threading.Lock()
        self._snapshot_offset = -1  # of the newest one on the disk
        self._trimmed_to = 0
        self._lost = False  # offline by a failure half way
        # The same, but no write was lost: what was wanting may be there again, and it opens then.
        self.may_open_again = False
        # Its files are on their way into another data directory: what they hold is not replaced.
        self.being_moved = False
        # Segments out of the log: whose files have their names yet, and files that had them.
        self._dropped: list[int] = []
        self._renamed: list[Path] = []

    def configure(
        self,
        *,
        segment_jitter_ms: int = 0,
        flush_ms: int = LONG_MAX,
        file_delete_delay_ms: int = FILE_DELETE_DELAY_MS,
        min_insync_replicas: int = 1,
        retention_ms: int = KEPT_FOR_EVER,
        retention_bytes: int = KEPT_FOR_EVER,
        segment_bytes: int = 1 << 30,
        compacted: bool = False,
        compaction: Compaction = NEVER_TOO_LATE,
        **settings: Any,
    ) -> None:
        """As the log's own, and what the manager asks of it in the background.

        The jitter is the bound here, and one is drawn from it.
        """
        self.flush_ms = flush_ms
        self.file_delete_delay_ms = file_delete_delay_ms
        self.min_insync_replicas = min_insync_replicas
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes
        self.segment_bytes = segment_bytes
        self.compacts = compacted
        self.compaction = compaction
        if segment_jitter_ms > 0:
            import random

            segment_jitter_ms = random.randrange(segment_jitter_ms)
        super().configure(
            segment_bytes=segment_bytes,
            segment_jitter_ms=segment_jitter_ms,
            min_insync_replicas=min_insync_replicas,
            compacted=compacted,
            **settings,
        )

    def trim(self) -> list[Path]:
        """Takes segments below the log's start out of it; their renamed files, to be removed later.

        What they say of leader epochs goes into the file of them first, and what they say of
        producers into a snapshot, since no later start finds it any more. Where the disk is too
        full, those go of which both files know all. A file that cannot be renamed is an OSError,
        and its turn comes again.
        """
        with self._changing:
            start = self.log_start_offset
            if start != self._trimmed_to:
                self.epochs.truncate_from_start(start)
                self._trimmed_to = start
            if segments_below_start(self):
                self._dropped += self._drop_below_locked(start)
            while self._dropped:
                self._give_up_names(self._dropped[0])
                del self._dropped[0]
            renamed, self._renamed = self._renamed, []
            return renamed

    def _drop_below_locked(self, start: int) -> list[int]:
        # Records that are deleted meanwhile go with the next trim, after their epochs are written.
        # The name of the segment that stays is on the disk before those of the others go: without
        # any segment a start would begin the log at offset 0 again.
        file_operations.sync_directory(self.path)
        bound, full = start, None
        try:
            # The file of epochs may lack what the batches tell that go now.
            self.epochs.settle(start)
        except OSError as error:
            if error.errno not in file_operations.NO_SPACE:
                raise
            bound, full = min(bound, self.epochs.unsettled_from), error
        try:
            self._write_snapshot_locked(sync=True)
        except OSError as error:
            if error.errno not in file_operations.NO_SPACE:
                raise
            bound, full = min(bound, self._snapshot_offset), error
        known = drop_below_start(self, bound=bound)
        if full is not None and not known:
            raise full
        return known

    def replace_by_cleaned(self, cleaning: Cleaning) -> bool:
        """Puts the segment that a cleaning has finished in the place of its group. False: the log
        was cut, trimmed or closed there meanwhile.

        The files that go are among those that the next `trim` answers. What a crash half way leaves
        the next opening completes (`segment_files.py`). OSError, MemoryError: nothing has changed,
        or it went half way and the log is offline.
        """
        with self._changing:
            if not cleaning.still_there or self.being_moved:
                return False
            with file_operations.open_directory(self.path) as make_names_last:
                return self._swap_in_locked(cleaning, cleaning.group_bases, make_names_last)

    def _swap_in_locked(
        self, cleaning: Cleaning, bases: list[int], make_names_last: Callable[[], None]
    ) -> bool:
        try:
            self._rename_segment(bases[0], CLEANED_SUFFIX, SWAP_SUFFIX)
            make_names_last()
            swapped = cleaning.swap_in()
        except BaseException:
            self._remove_cleaned(bases[0])
            raise
        if not swapped:
            self._remove_cleaned(bases[0])
            return False
        with self._or_offline():
            for base_offset in reversed(bases):
                self._give_up_names(base_offset)
            self._rename_segment(bases[0], SWAP_SUFFIX, "")
            cleaning.has_its_names()
            make_names_last()
        return True

    def _remove_cleaned(self, base_offset: int) -> None:
        """Of a group that stays as it is: no later opening may put this in its place."""
        with self._or_offline():
            for kind in reversed(CLEANED_KINDS):  # the .log last: alone it is whole
                for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX):
                    file_operations.unlink(self.path / f"{base_offset:020d}.{kind}{suffix}")

    @contextmanager
    def _or_offline(self) -> Iterator[None]:
        """An error in the block leaves files whose content is unknown here."""
        try:
            yield
        except BaseException as error:
            self._lost = True
            self.may_open_again = file_operations.loses_no_write(error)
            super().close()
            raise

    @contextmanager
    def changing(self) -> Iterator[None]:
        """No other thread changes the set of its files; appends go on, and so do rolls."""
        with self._changing:
            yield

    def moved_to(self, path: Path) -> None:
        """Its directory is there now, with all its files (`_moving.put_in_place`)."""
        self.path = path
        self.epochs.moved_to(path)

    def note_cleaned(self, cleaning: Cleaning) -> None:
        """What a cleaning has seen to the end is clean, if it is still what is there."""
        with self._changing:
            if cleaning.same_history:
                self.cleaned_to = cleaning.mapped_end

    def restore(self, scrub: SegmentScrub, position: int, batch: bytes) -> bool:
        """Puts the bytes that were once written there in the place of a damaged batch; they are on
        the disk on return. False: the segment was cut, cleaned, trimmed or closed meanwhile, or is
        being moved. OSError."""
        with self._changing:  # a cut, and appends after it, would be written over
            if not scrub.still_there or self.being_moved:  # its copy may have that batch already
                return False
            scrub.write(position, batch)
        try:
            scrub.sync()
        except OSError:
            # It is reported once: the next flush would take for written what was lost with it.
            self.go_offline()
            raise
        return True

    def _rename_segment(self, base_offset: int, suffix: str, fresh_suffix: str) -> None:
        # The .log first: what is left over of an index is given its name by the next opening.
        for kind in CLEANED_KINDS:
            path = self.path / f"{base_offset:020d}.{kind}"
            try:
                file_operations.rename(
                    path.with_name(path.name + suffix), path.with_name(path.name + fresh_suffix)
                )
            except FileNotFoundError:
                if kind != "txnindex":  # where nothing was aborted there is none
                    raise

    def truncate_to(self, offset: int, falls_to: Callable[[int], None] = _ignore_end) -> None:
        """Cuts the log so that it ends at an offset, or after the last batch that lies below it.

        For a replica whose leader has another history; nothing is appended meanwhile. `falls_to` is
        called with the new end, right before it is. Files that go are among those that the next
        `trim` answers. OSError: nothing has changed, or it went half way and the log is offline.
        """
        with self._changing:
            self._refuse_closed_locked()
            if offset >= self.log_end_offset:
                # Without a batch, an epoch of our own at the end is nothing the leader has to know.
                self.epochs.truncate_from_end(self.log_end_offset)
                return
            if self._begins_before(offset):
                self._cut_locked(offset, falls_to)
            else:
                self._begin_again_locked(offset, falls_to)

    def begin_again(self, offset: int, falls_to: Callable[[int], None] = _ignore_end) -> None:
        """Lets go of everything; the log goes on empty at an offset. OSError as `truncate_to`.

        Without batches there are no epochs: those of before are not the history up to here.
        """
        with self._changing:
            self._refuse_closed_locked()
            self._begin_again_locked(offset, falls_to)

    def _refuse_closed_locked(self) -> None:
        """One that went offline has its files, and knows none of them."""
        if self.active_base_offset < 0:
            raise OSError(errno.EIO, "the log is closed", str(self.path))

    def _cut_locked(self, offset: int, falls_to: Callable[[int], None]) -> None:
        base_offset, position, end_offset = place_of(self, offset)
        with file_operations.open_directory(self.path) as make_names_last:
            self._promise_no_more_locked(base_offset, end_offset, partial(falls_to, end_offset))
            self._cut_at_locked(offset, base_offset, position, end_offset, make_names_last)

    def _cut_at_locked(
        self,
        offset: int,
        base_offset: int,
        position: int,
        end_offset: int,
        make_names_last: Callable[[], None],
    ) -> None:
        with self._or_offline():
            # From the end on: a crash leaves the beginning of the log.
            for later in reversed(segments_from(self, base_offset + 1)):
                self._give_up_names(later)
            if not cut_end(self, offset, replaced=False):
                self._replace_by_head(base_offset, position)
                cut_end(self, offset, replaced=True)
            # A name that comes back would be beside those that are written from now on.
            make_names_last()
            self.epochs.truncate_from_end(end_offset)
            # A log without them would take a batch that it has for a new one.
            self.restore_producers(end_offset)

    def _begin_again_locked(self, offset: int, falls_to: Callable[[int], None]) -> None:
        with file_operations.open_directory(self.path) as make_names_last:
            self._promise_no_more_locked(0, 0, partial(falls_to, offset))
            self._give_up_all_locked(offset, make_names_last)
        self._trimmed_to = offset
        self._snapshot_offset = -1

    def _give_up_all_locked(self, offset: int, make_names_last: Callable[[], None]) -> None:
        with self._or_offline():
            self.epochs.clear()  # first: of a log without a file the batches tell, should this end
            producer_snapshots.remove_all(self.path)  # of batches that are gone nothing is known
            for base_offset in reversed(segments_from(self, 0)):
                self._give_up_names(base_offset)
            make_names_last()  # no name that comes back is trusted later
            begin_again(self, offset)

    def _promise_no_more_locked(
        self, settled: int, clean_to: int, falls: Callable[[], None]
    ) -> None:
        """A later start reads the files that are about to change, whatever a crash leaves of the
        change; and the callbacks are called. OSError: that is not written down, so nothing may
        change; the log goes on as it is.
        """
        begin_cut(self, settled)
        self.cleaned_to = min(self.cleaned_to, clean_to)
        try:
            self._points_fell(self)
            falls()
        except BaseException:
            give_up_cut(self)
            raise

    def _begins_before(self, offset: int) -> bool:
        bases = segments_from(self, 0)
        return bool(bases) and bases[0] <= offset

    def _replace_by_head(self, base_offset: int, position: int) -> None:
        """Puts a copy of the part that stays in the file's place, for readers of the old one."""
        path = self.path / f"{base_offset:020d}.log"
        copy = path.with_name(path.name + TEMPORARY_SUFFIX)
        file_operations.copy_part(path, 0, position, copy)
        file_operations.rename(copy, path)

    def restore_producers(self, end_offset: int, sizes: Mapping[str, int] | None = None) -> None:
        """From the newest snapshot at or below the log's end, and the batches after it. `sizes`: of
        the files that there are, if they were listed already.

        A snapshot does not say which transactions have ended before it: where that has to be known,
        the batches since an older one are read before. Producers that have no batch in the log any
        more are in the newest alone.
        """
        offset, entries = self._newest_snapshot(end_offset, sizes)
        self._snapshot_offset = offset
        known_from = self._transactions_known_from(offset, entries)
        ended: list[EndedTransaction] = []
        if known_from < offset:
            older = self._newest_snapshot(end_offset, at_most=known_from)
            self._restore_producers(*older)
            ended = [each for each in self.forget_producers() if each.marker_offset < offset]
        self._restore_producers(offset, entries, ended)

    def _newest_snapshot(
        self,
        end_offset: int,
        sizes: Mapping[str, int] | None = None,
        *,
        at_most: int | None = None,
    ) -> tuple[int, list[ProducerEntry]]:
        """None where batches after it are deleted: a producer that has sent them would be out of
        order for ever, and one that is not known may begin anywhere. Apache Kafka removes such
        snapshots (ProducerStateManager)."""
        offset, entries = producer_snapshots.load_newest(
            self.path, end_offset, sizes, at_most=at_most
        )
        return (offset, entries) if self._begins_before(offset) else (-1, [])

    def _transactions_known_from(self, offset: int, entries: Iterable[ProducerEntry]) -> int:
        """Up to the snapshot's offset, or below it, from where on each transaction has to be known
        that was open there or began later."""
        known_from, rebuilt = offset, self.rebuilt_from()
        if rebuilt >= 0:  # to find the aborted ones of a segment again
            known_from = min(known_from, rebuilt)
        # A marker above the high watermark decides nothing yet. Without a checkpoint of that, which
        # would have the whole log read, it is taken for passed.
        mark = self.checkpointed_high_watermark
        if (
            0 < mark < known_from
            and any(entry.coordinator_epoch >= 0 for entry in entries)
            and self.has_marker_between(mark, offset)
        ):
            known_from = mark
        return known_from

    def _restore_producers(
        self,
        offset: int,
        entries: Iterable[ProducerEntry],
        ended: Iterable[EndedTransaction] = (),
    ) -> None:
        # Producers in the order of their last batches, transactions in that of their first ones.
        open_there = []
        for entry in entries:
            if entry.transaction_first_offset >= 0:
                open_there.append(entry)
                self.restore_producer(entry._replace(transaction_first_offset=-1))
            else:
                self.restore_producer(entry)
        for entry in sorted(open_there, key=attrgetter("transaction_first_offset")):
            self.restore_producer(entry)
        for each in ended:
            self.restore_ended(each)
        self.replay_producers(
            max(offset, segments_from(self, 0)[0]), self.checkpointed_high_watermark
        )

    def _give_up_names(self, base_offset: int) -> None:
        """Files of a segment that has left the log, or is about to, to be removed later."""
        # The .log first: without it the next start takes the indexes for left over.
        for suffix in SEGMENT_SUFFIXES:
            path = self.path / f"{base_offset:020d}.{suffix}"
            target = path.with_name(path.name + DELETED_FILE_SUFFIX)
            try:
                file_operations.rename(path, target)
            except FileNotFoundError:
                continue  # no such index, or the whole topic is gone
            self._renamed.append(target)

    def encode_producers(self) -> tuple[int, bytes]:
        """How many producers the log knows, and they as DescribeProducers v0 carries them."""
        return _describe.encode_producers(self)

    def write_snapshot(self, *, sync: bool = False) -> bool:
        """Writes the producers' state, if there is something new. True if a file was written."""
        with self._changing:
            return self._write_snapshot_locked(sync=sync)

    def _write_snapshot_locked(self, *, sync: bool) -> bool:
        offset, entries = self.producer_snapshot()
        if offset == self._snapshot_offset or (not entries and self._snapshot_offset < 0):
            return False
        producer_snapshots.write(
            self.path,
            offset,
            entries,
            sync=sync,
            needed_from=(self._recovered_from(), self.checkpointed_high_watermark),
        )
        self._snapshot_offset = offset
        return True

    def _recovered_from(self) -> int:
        """The base offset of the first segment that a start after a crash would read."""
        settled = self.settled_offset
        return max((base for base in segments_from(self, 0) if base <= settled), default=-1)

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
        if clean and (self._lost or (not self.online and self.active_base_offset >= 0)):
            self.abandon()
            why = "a change ended half way" if self.may_open_again else "a write was lost"
            raise OSError(errno.EIO, f"it went offline when {why}", str(self.path))
        if clean and self.online:
            if self.settled_offset < self.log_end_offset:
                self.end_times()
                self.flush(whole=True)
            self.write_snapshot(sync=True)
            self.epochs.settle(self.log_end_offset)
        self.abandon()

    def abandon(self) -> None:
        """Lets go of its files as they are. None of them is renamed from here on: they may soon be
        another log's."""
        with self._changing:
            super().close()

    def delete(self) -> Path:
        """Ends the log and renames its directory; the files in it are removed later.

        Slices that were lent can still be sent. Answers the new path.
        """
        with self._changing:
            super().close()
            target = deleted_path(self.path)
            file_operations.rename(self.path, target)
        return target


def deleted_path(path: Path) -> Path:
    """`<topic>-<partition>.<unique>-delete`, cut so that the name stays one."""
    suffix = f".{uuid.uuid4().hex}{DELETED_SUFFIX}"
    return path.with_name(path.name[: DIRECTORY_NAME_CHARS_MAX - len(suffix)] + suffix)
