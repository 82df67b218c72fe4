"""Where each leader epoch of one log begins: the answer to "how far did epoch N come?".

A replica that was away asks its leader, cuts off what the leader does not have, and goes on from
there. Entries rise in epoch and in start offset. Owned by one `PartitionLog`. The replica layer
begins epochs, the background work forgets those below the log's start, any thread may ask: the list
is replaced, never changed. One lock, a leaf, over a change and its file.

A change is in the file, and on the disk (`settle`), before a recovery point is beyond it. Until
then the file has another history from there on, and the batches, which a start after a crash reads,
have the right one: so a thousand partitions that begin an epoch, or start, touch no file. An epoch
without a batch is in none: only its leader has to know of it.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kbroker.config.key import LONG_MAX
from kbroker.log.engine import file_operations
from kbroker.log.engine.checkpoints import (
    LEADER_EPOCH_FILE,
    leader_epochs_in,
    read_leader_epochs,
    write_leader_epochs,
)

UNKNOWN = (-1, -1)
NO_EPOCH = -1
_ALL_SETTLED: Final = LONG_MAX


class LeaderEpochs:
    """(epoch, start offset) in order, kept in `leader-epoch-checkpoint`."""

    def __init__(
        self,
        directory: Path,
        changed: Callable[[list[tuple[int, int]]], None] | None = None,
        data: bytes | None = None,
    ) -> None:
        """`changed` is given every new list, and the first; it may not come back here. `data`: the
        file's content, if it was read already."""
        self._directory = directory
        self._changed = changed or (lambda _: None)
        self._lock = threading.Lock()
        self._unsettled_from = _ALL_SETTLED
        self._written = True
        try:
            self._entries = (
                read_leader_epochs(self.path) if data is None else leader_epochs_in(data)
            )
        except ValueError:
            # A power cut may leave it empty; the batches have their own epochs.
            self._entries = []
        self._changed(self._entries)

    @property
    def path(self) -> Path:
        """The file's. Not kept: few of ten thousand logs ever write it."""
        return self._directory / LEADER_EPOCH_FILE

    @property
    def entries(self) -> list[tuple[int, int]]:
        """A copy, oldest first."""
        return list(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if none."""
        return self._entries[-1][0] if self._entries else -1

    def assign(self, epoch: int, start_offset: int, wait_s: float = -1) -> bool:
        """Epoch `epoch` begins at `start_offset`. One that is not newer changes nothing. False: the
        file has been written for `wait_s`; below 0 that is waited for."""
        if not self._lock.acquire(timeout=wait_s):
            return False
        try:
            if epoch > self.latest:
                # An epoch in which nothing was written gives way to the one that begins there.
                kept = [entry for entry in self._entries if entry[1] < start_offset]
                self._replace_locked([*kept, (epoch, start_offset)], start_offset)
            return True
        finally:
            self._lock.release()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below `epoch`; (-1, -1) if unknown.

        One from before the first known epoch ended where that begins.
        """
        entries = self._entries
        if epoch == NO_EPOCH or not entries or epoch > entries[-1][0]:
            return UNKNOWN
        if epoch < entries[0][0]:
            return epoch, entries[0][1]
        at = bisect.bisect_right(entries, epoch, key=lambda entry: entry[0])
        end = entries[at][1] if at < len(entries) else log_end_offset
        return entries[at - 1][0], end

    def epoch_at(self, offset: int) -> int:
        """The epoch in which `offset` was or will be written; -1 if it is older than all known."""
        entries = self._entries
        at = bisect.bisect_right(entries, offset, key=lambda entry: entry[1])
        return entries[at - 1][0] if at else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that begin there or later are gone."""
        with self._lock:
            kept = [entry for entry in self._entries if entry[1] < end_offset]
            if len(kept) != len(self._entries):
                self._replace_locked(kept, end_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch there begins with it. Every start of the
        broker finds that again, so the file may lack it."""
        with self._lock:
            old = self._entries
            at = bisect.bisect_right(old, start_offset, key=lambda entry: entry[1]) - 1
            if at >= 0 and (at > 0 or old[0][1] != start_offset):
                entries = [(old[at][0], start_offset), *old[at + 1 :]]
                self._replace_locked(entries, self._unsettled_from)

    def add(self, entries: list[tuple[int, int]]) -> None:
        """The epochs of the batches, after those of the file."""
        if entries:
            with self._lock:
                self._replace_locked([*self._entries, *entries], entries[0][1])

    def clear(self) -> None:
        """The log begins again, without batches: the file has no epoch from here on. Where the disk
        is full the file is removed, which means the same. OSError if that is not on the disk."""
        with self._lock:
            if not self._entries and self._written:
                return
            self._replace_locked([], 0)
            try:
                self._settle_locked()
            except OSError as error:
                if error.errno not in file_operations.NO_SPACE:
                    raise
                file_operations.unlink(self.path)
                file_operations.sync_directory(self.path.parent)
                self._written, self._unsettled_from = True, _ALL_SETTLED

    @property
    def unsettled_from(self) -> int:
        """Where the first epoch begins that the file on the disk may lack; else beyond all."""
        return self._unsettled_from

    def settle(self, offset: int) -> None:
        """Brings the file to the disk, if an epoch that it may lack begins below that offset."""
        if self._unsettled_from < offset:
            with self._lock:
                self._settle_locked()

    def write(self, offset: int) -> None:
        """The same but for the sync, which is the whole volume's. A power cut before that may leave
        an empty file, so only of a log whose batches tell the epochs."""
        if self._unsettled_from < offset:
            with self._lock:
                self._write_locked()

    def settled_with_volume(self) -> None:
        """The whole volume was synced after `write`."""
        with self._lock:
            if self._written:
                self._unsettled_from = _ALL_SETTLED

    def copy_to(self, directory: Path) -> None:
        """Writes the present epochs there, too; on the disk with its name when the directory is."""
        with self._lock:
            write_leader_epochs(directory / LEADER_EPOCH_FILE, self._entries)
            file_operations.sync_file(directory / LEADER_EPOCH_FILE)

    def moved_to(self, directory: Path) -> None:
        """The file is there from now on, as `copy_to` left it: what came since it may lack."""
        with self._lock:
            self._directory = directory
            self._written = False

    def _settle_locked(self) -> None:
        if self._written:
            file_operations.sync_file(self.path)
        else:
            self._write_locked(sync=True)
        self._unsettled_from = _ALL_SETTLED

    def _write_locked(self, *, sync: bool = False) -> None:
        """`sync`: the new file is on the disk before it replaces the old one."""
        if not self._written:
            write_leader_epochs(self.path, self._entries, sync=sync)
            self._written = True

    def _replace_locked(self, entries: list[tuple[int, int]], changed_from: int) -> None:
        self._written = False
        self._unsettled_from = min(self._unsettled_from, changed_from)
        self._entries = entries
        self._changed(entries)
