"""Two processes of one broker: a copy of its data directory is started, or its id is taken.

A twin is a real start, from a copy, with locks of its own: it has to wait until the session of the
running broker ends. Once that has ended, an operator finds two brokers and ends the copy at once. A
usurper is a process that takes the registration without a check, as an early kbroker did: it
replaces the registration, serves no request, and ends. `Safety.written` checks the writes to the
store, and `living.py` the brokers that go on serving meanwhile.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError, UserError
from kbroker.metadata.controller import records
from kbroker.metadata.image import BrokerImage
from kbroker.metadata.store.base import Create, Delete, Operation
from tests.simulation.broker import Broker, Running
from tests.simulation.links import PORT, host_of
from tests.simulation.network import CLIENTS
from tests.simulation.store import Session

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


class Twins:
    """See the head of this file."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._copies: list[Running] = []
        self._usurpers: list[Session] = []
        self._made = 0

    def copy(self, node_id: int, for_ms: int) -> None:
        """Of a broker that runs; the copy's start goes on for so long."""
        cluster, original = self._cluster, self._cluster.brokers[node_id]
        if original.running is None or cluster.is_full(node_id):
            return
        self._made += 1
        directory = original.directory.with_name(f"{original.directory.name}-copy-{self._made}")
        shutil.copytree(original.directory, directory)
        twin = Running(cluster, Broker(node_id, directory, original.config), is_copy=True)
        self._copies.append(twin)
        try:
            twin.start(lambda error: cluster.loop.later(0, self._end, twin))
        except (UserError, KafkaError, OSError):
            self._end(twin)
        cluster.loop.later(for_ms, self._end, twin)

    def _end(self, twin: Running) -> None:
        if twin in self._copies:
            self._copies.remove(twin)
            twin.end(clean=False)
            shutil.rmtree(twin.broker.directory)

    def usurp(self, node_id: int, for_ms: int) -> None:
        """The registration is another's for so long."""
        cluster, path = self._cluster, records.broker_path(node_id)
        usurper = cluster.ensemble.begin_session(cluster.clients, CLIENTS)
        self._usurpers.append(usurper)
        broker = BrokerImage(node_id, host_of(node_id), PORT)
        data = records.encode_broker(broker, cluster.loop.now_ms, ["another's"])
        operations: list[Operation] = [Create(path, data, ephemeral=True)]
        if cluster.ensemble.tree.find(path) is not None:
            operations.insert(0, Delete(path))
        usurper.multi(operations)
        cluster.loop.later(for_ms, usurper.close)

    def end(self) -> None:
        """End all copies and usurpers."""
        for twin in list(self._copies):
            self._end(twin)
        for usurper in self._usurpers:
            usurper.close()
