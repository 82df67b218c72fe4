"""Logs that fail while the broker serves: partitions that others should lead.

Place in the flow: looked at every so often; what is found is said to the controller
(`cluster/replication.py`), which takes this broker out of their in-sync sets and has others lead.

    offline     a write was lost, or could not be undone: until the next start
    failing     writes were refused, by a full disk, say, and the log is as it was before them. It
                may take the next one, so it is named for PAUSE_MS after the last that failed; but
                not where no other replica could lead: producers get the error, and try again
    refusing    its disk is nearly full (`log/upkeep/free_space.py`). It is as good as any other,
                and stays in sync; the controller, which knows the others that refuse, has another
                lead if one can

One thread at a time. A log is asked for three numbers, so thousands cost a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.metadata.image import ClusterImage
    from kbroker.replica._replica import Replica

# How long a disk is left alone that has refused a write.
PAUSE_MS: Final = 10_000


class Trouble(NamedTuple):
    """Of the replicas here: those that no broker should lead, and those that others should lead."""

    failing: frozenset[TopicPartition] = frozenset()
    refusing: frozenset[TopicPartition] = frozenset()


class _Seen(NamedTuple):
    replica: Replica
    failed_writes: int
    until_ms: int


class FailingLogs:
    """See the head of this file."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self._node_id = node_id
        self._clock = clock
        self._seen: dict[TopicPartition, _Seen] = {}

    def look(self, replicas: Mapping[TopicPartition, Replica], image: ClusterImage) -> Trouble:
        """As things are now."""
        now_ms = self._clock.monotonic_ms()
        found: set[TopicPartition] = set()
        refusing: set[TopicPartition] = set()
        seen: dict[TopicPartition, _Seen] = {}
        for name, replica in replicas.items():
            if not replica.online:
                found.add(name)
            elif failed_writes := replica.log.failed_writes:
                known = self._seen.get(name)
                if known is None or known[:2] != (replica, failed_writes):
                    known = _Seen(replica, failed_writes, now_ms + PAUSE_MS)
                seen[name] = known
                if now_ms < known.until_ms and not self._is_alone(image, name):
                    found.add(name)
            if replica.log.refuses_producers:
                refusing.add(name)
        self._seen = seen
        return Trouble(frozenset(found), frozenset(refusing))

    def _is_alone(self, image: ClusterImage, name: TopicPartition) -> bool:
        """Whether it leads and no other replica could be elected in its place."""
        partition = image.partition(*name)
        if partition is None or partition.leader != self._node_id:
            return False
        able = {*partition.isr, *partition.eligible} & image.brokers.keys()
        return able <= {self._node_id}
