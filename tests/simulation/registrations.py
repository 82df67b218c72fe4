"""The registrations of brokers' ids: an id is taken over only from a session that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.metadata.controller import records
from kbroker.metadata.store.base import Create
from tests.simulation.network import CLIENTS

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.store import Session


class _Registered(NamedTuple):
    session: Session
    lossy: bool


class Registrations:
    """The registrations, in the order in which the store was written."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last: dict[str, _Registered] = {}

    def note(self, session: Session, operation: Create) -> bool:
        """Whether this node is a broker's registration as one that may lack records: after a power
        cut, after a start that could not write on a full disk, or as a copy."""
        path, before = operation.path, self._last.get(operation.path)
        if not path.startswith(f"{records.BROKER_IDS}/"):
            return False
        lossy = records.decode_broker(path, operation.data).lossy
        self._last[path] = _Registered(session, lossy)
        lives = before is not None and before.session.shares_with(session)
        if lives and session.node_id != CLIENTS:
            detail = f"{path} was taken over from a live session"
            self._cluster.safety.fail("an id is of one process", detail)
        return lossy

    def is_copied(self, node_id: int) -> bool:
        """A copy of its data directory was the last to register in its place."""
        running = self._cluster.brokers[node_id].running
        last = self._last.get(records.broker_path(node_id))
        if last is None or running is None:
            return False
        return last.lossy and not last.session.is_of(running.process)
