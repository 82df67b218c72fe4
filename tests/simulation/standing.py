"""Rules for brokers with threads: no thread waits longer than it has to.

The controller's thread waits for no lock that is held during a disk operation, except where it does
the work of a lane (`lanes.py`). No thread waits for a lock longer than a disk hangs. Records that a
failed sync has lost do not count as written (`lost_syncs.py`). In a calm history (`hangs.py`) at
most one disk hangs and one broker dies. There, also, an elected broker leads within the time of a
session and of the events after it, if the disk of its own log does not hang; and elections end
(`elections.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.metadata.image import NO_LEADER
from tests.simulation.elections import Elections
from tests.simulation.loop import CONTROLLER

if TYPE_CHECKING:
    from kbroker.types import TopicPartition
    from tests.simulation.cluster import Cluster
    from tests.simulation.scheduler import BrokerThread, Scheduler

PERIOD_MS: Final = 100
# Longer than several pauses of a thread, one after the other.
CONTROLLER_WAITS_MS: Final = 1_000
WAITS_AFTER_HANG_MS: Final = 3_000
LEADS_WITHIN_MS: Final = 2_000


class Standing:
    """See the head of this file."""

    def __init__(self, cluster: Cluster, scheduler: Scheduler, *, calm: bool) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._calm = calm
        self._hung_at_ms = 0
        self._late: dict[TopicPartition, int] = {}
        self._elections = Elections(cluster)

    def begin(self) -> None:
        self._look_later()
        if self._calm:
            self._elections.begin()

    def _look_later(self) -> None:
        self._cluster.loop.later(PERIOD_MS, self._look)

    def _look(self) -> None:
        now_ms = self._cluster.loop.now_ms
        if self._scheduler.any_hangs:
            self._hung_at_ms = now_ms
        for thread in self._scheduler.threads:
            self._look_at(thread, now_ms)
        if self._scheduler.lost is not None:
            for detail in self._scheduler.lost.wrong():
                self._cluster.safety.fail("lost writes do not count as written", detail)
        if self._calm:
            for name in self._cluster.logs:
                self._look_at_leader(name, now_ms)
        self._look_later()

    def _look_at(self, thread: BrokerThread, now_ms: int) -> None:
        waits = thread.waits
        if waits is None or waits.key is None or thread.process.paused:
            return
        since_ms = round(waits.since_ms)
        detail = f"{thread} waits for {waits} since {since_ms} ms: {thread.where()}"
        late = now_ms - since_ms > CONTROLLER_WAITS_MS
        if thread.name == CONTROLLER and late and not thread.in_lane:
            self._cluster.safety.fail("the controller's thread waits for no disk", detail)
        if now_ms - max(since_ms, self._hung_at_ms) > WAITS_AFTER_HANG_MS:
            self._cluster.safety.fail("no thread waits longer than a disk hangs", detail)

    def _look_at_leader(self, name: TopicPartition, now_ms: int) -> None:
        state = self._cluster.safety.partition(name).state
        if state is None or state.leader == NO_LEADER:
            return
        broker = self._cluster.brokers[state.leader]
        replica = None if broker.running is None else broker.running.replicas.partition(*name)
        if (
            replica is None
            or replica.leader_epoch >= state.leader_epoch
            or self._scheduler.hangs(f"{broker.directory}/{name}/")
        ):
            self._late.pop(name, None)
        elif now_ms - self._late.setdefault(name, now_ms) > LEADS_WITHIN_MS:
            detail = f"{state.leader} was elected for {name} in {state.leader_epoch}, and is at"
            detail += f" {replica.leader_epoch} since {self._late[name]} ms"
            self._cluster.safety.fail("an elected broker leads", detail)
