"""Where each leader epoch of one log begins: the answer to "how far did epoch N come?".

A replica that was away asks its leader, cuts off what the leader does not have, and goes on from
there. Entries rise in epoch and in start offset. Owned by one `PartitionLog`; the replica layer
calls it from one thread at a time. The file follows every change before the epoch is used.
"""

from __future__ import annotations

import bisect
from pathlib import Path

from kbroker.log.checkpoints import CheckpointError, read_leader_epochs, write_leader_epochs

UNKNOWN = (-1, -1)


class LeaderEpochs:
    """(epoch, start offset) in order, kept in `leader-epoch-checkpoint`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._entries = read_leader_epochs(path)
        except CheckpointError:
            # A power cut may leave it empty; the batches know the epochs of what they hold.
            self._entries = []

    @property
    def entries(self) -> list[tuple[int, int]]:
        """A copy, oldest first."""
        return list(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if none."""
        return self._entries[-1][0] if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Epoch `epoch` begins at `start_offset`. One that is not newer changes nothing."""
        if epoch <= self.latest:
            return
        # An epoch in which nothing was written gives way to the one that begins at its place.
        kept = [entry for entry in self._entries if entry[1] < start_offset]
        self._replace([*kept, (epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below `epoch`; (-1, -1) if unknown.

        One from before the first known epoch ended where that begins.
        """
        if epoch < 0 or epoch > self.latest:
            return UNKNOWN
        if epoch < self._entries[0][0]:
            return epoch, self._entries[0][1]
        at = bisect.bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        end = self._entries[at][1] if at < len(self._entries) else log_end_offset
        return self._entries[at - 1][0], end

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that begin there or later are gone."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if len(kept) != len(self._entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch there begins with it."""
        at = bisect.bisect_right(self._entries, start_offset, key=lambda entry: entry[1]) - 1
        if at < 0 or (at == 0 and self._entries[0][1] == start_offset):
            return
        self._replace([(self._entries[at][0], start_offset), *self._entries[at + 1 :]])

    def restore(self, entries: list[tuple[int, int]]) -> None:
        """What the batches say, where the file said nothing."""
        self._replace(entries)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        write_leader_epochs(self.path, entries)
        self._entries = entries
