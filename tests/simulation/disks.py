"""Faults of the disks of a simulated cluster: acts of `Cluster`, by broker and partition."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults

if TYPE_CHECKING:
    from kbroker.types import TopicPartition
    from tests.simulation.broker import Broker
    from tests.simulation.loop import StepLoop
    from tests.simulation.scheduler import Scheduler


# The operations that fail so.
_LIMITED = {errno.ENOSPC: ("write", "allocate"), errno.EIO: ("write", "allocate", "sync")}


class DiskActs:
    """See the head of this file."""

    brokers: dict[int, Broker]
    names: list[TopicPartition]
    loop: StepLoop
    scheduler: Scheduler | None
    _full: list[tuple[int, int]]
    _disk_faults: FileFaults | None

    def fill_disk(self, node_id: int, for_ms: int) -> None:
        """No byte more is taken."""
        self._refuse_bytes(node_id, errno.ENOSPC, for_ms)

    def fail_disk(self, node_id: int, for_ms: int) -> None:
        """None is written and brought to the disk."""
        self._refuse_bytes(node_id, errno.EIO, for_ms)

    def _refuse_bytes(self, node_id: int, error: int, for_ms: int) -> None:
        limit = node_id, error
        self._full.append(limit)
        self._limit_disks()
        broker = self.brokers[node_id]
        for running in (broker.running, broker.starting):
            if running is not None:
                running.disk_failed = True
        self.loop.later(for_ms, self._make_room, limit)

    def _make_room(self, limit: tuple[int, int]) -> None:
        if limit in self._full:
            self._full.remove(limit)
            self._limit_disks()

    def _limit_disks(self) -> None:
        faults = [
            Fault(
                _LIMITED[error],
                f"{self.brokers[node_id].directory}/",
                times=FOREVER,
                error=error,
            )
            for node_id, error in sorted({*self._full})
        ]
        if self.scheduler is not None:
            self.scheduler.watch_files(faults)
            return
        if self._disk_faults is not None:
            self._disk_faults.__exit__(None, None, None)
            self._disk_faults = None
        if faults:
            self._disk_faults = FileFaults(*faults).__enter__()

    def hang_disk(self, node_id: int, index: int, for_ms: int) -> None:
        """Under one log of a broker, or all (ALL_LOGS), where brokers have threads."""
        if self.scheduler is not None:
            self.scheduler.hang(self._files(node_id, index), for_ms)

    def hang_syncs(self, node_id: int, index: int, for_ms: int) -> None:
        """So that several flushes are at a log at once."""
        if self.scheduler is not None:
            self.scheduler.hang(self._files(node_id, index), for_ms, frozenset({"sync"}))

    def fail_sync(self, node_id: int, index: int) -> None:
        """The next one of that log."""
        if self.scheduler is not None:
            self.scheduler.fail_sync(self._files(node_id, index))

    def _files(self, node_id: int, index: int) -> str:
        homes = len(self.names)
        part = {homes: f"{OFFSETS_TOPIC}-", homes + 1: ""}.get(index)
        directory = self.brokers[node_id].directory
        return f"{directory}/{f'{self.names[index]}/' if part is None else part}"

    def nearly_full(self, node_id: int, for_ms: int) -> None:
        """Its logs refuse the batches of producers, for want of room."""
        self._refuse(node_id, True)
        self.loop.later(for_ms, self._refuse, node_id, False)

    def _refuse(self, node_id: int, refuses: bool) -> None:
        running = self.brokers[node_id].running
        for replica in () if running is None else running.replicas.replicas().values():
            if replica.name.topic != OFFSETS_TOPIC:
                replica.log.refuse_producers(refuses)

    def is_full(self, node_id: int) -> bool:
        return any(node_id == each for each, _ in self._full)
