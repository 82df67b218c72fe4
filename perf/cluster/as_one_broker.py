"""A cluster that a study takes for one broker: clients know its first, and all do the work."""

from __future__ import annotations

from typing import Final

from perf.brokers.base import Broker
from perf.cluster.brokers import Cluster

FIRST: Final = 1


class ClusterAsBroker(Broker):
    """The first broker of a cluster, which starts, stops and is held still as a whole."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.directory, cluster.nodes[FIRST].port)
        self.name = cluster.name
        self._cluster = cluster

    def start(self) -> None:
        self._cluster.start()

    @property
    def measured_pid(self) -> int:
        return self._cluster.nodes[FIRST].pid

    @property
    def measured_pids(self) -> tuple[int, ...]:
        """Every broker's; the process at which they meet is counted apart."""
        return tuple(node.pid for node in self._cluster.nodes.values())

    @property
    def own_pids(self) -> tuple[int, ...]:
        return tuple(self._cluster.pids)

    @property
    def runs(self) -> bool:
        return all(broker.runs for broker in self._cluster.running)

    def check_alive(self) -> None:
        self._cluster.check_alive()

    def hold(self) -> None:
        self._cluster.hold()

    def resume(self) -> None:
        self._cluster.resume()

    def stop(self) -> None:
        self._cluster.discard()
