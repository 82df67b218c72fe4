"""Syncs that fail, where brokers have threads: records that they lost do not count as written.

The kernel reports lost writes to one sync of a file; the next sync of that file succeeds. So no
further record of a log may count as on the disk once a sync of it has failed: its recovery point
stays, though another flush of the same file succeeds meanwhile.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.testing.file_faults import Fault

if TYPE_CHECKING:
    from kbroker.replica._replica import Replica
    from tests.simulation.cluster import Cluster


@dataclass(eq=False)
class _Lost:
    path: str
    by: Any  # the thread whose sync failed
    replica: Replica
    point: int
    synced_again: bool = False


class LostSyncs:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._armed: list[str] = []
        self._lost: list[_Lost] = []

    def arm(self, directory: str) -> Fault:
        """The next sync of a file there fails by the fault that is returned."""
        self._armed.append(directory)
        return _fault(directory)

    def disarm(self) -> None:
        self._armed.clear()

    def faults(self) -> list[Fault]:
        return [_fault(each) for each in self._armed]

    def before(self, path: str, thread: Any) -> None:
        """A sync of this file, right before it."""
        for each in self._armed:
            if each in path:
                self._armed.remove(each)
                replica = self._replica_at(path)
                if replica is not None and path.endswith(".log"):
                    point = replica.log.recovery_point
                    self._lost.append(_Lost(path, thread, replica, point))
                return
        for lost in self._lost:
            if lost.path == path and lost.by is not thread:
                lost.synced_again = True

    def _replica_at(self, path: str) -> Replica | None:
        """The replica whose log has this file; its disk has failed."""
        for broker in self._cluster.brokers.values():
            running = broker.running or broker.starting
            if running is not None and path.startswith(f"{broker.directory}/"):
                running.disk_failed = True
                found = running.replicas.replicas()
                return next((found[name] for name in found if f"/{name}/" in path), None)
        return None

    def wrong(self) -> Iterator[str]:
        for each in self._lost:
            if each.synced_again and each.replica.log.recovery_point > each.point:
                yield (
                    f"{each.path}: a sync of {each.by} has lost writes after {each.point},"
                    f" and the recovery point is {each.replica.log.recovery_point}"
                )


def _fault(directory: str) -> Fault:
    return Fault(("sync",), directory, error=errno.EIO)
